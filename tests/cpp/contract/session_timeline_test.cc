// What a job's timeline has, with all threads.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/session_world.h"

namespace roundelay::contract {
namespace {

// Returns the number that follows `key` in the line.
std::uint64_t number_after(const std::string& line, const std::string& key) {
  return std::stoull(line.substr(line.find(key) + key.size()));
}

// Returns the sequences of the marked orders of each rank, as they come in the file.
std::map<std::uint64_t, std::vector<std::uint64_t>> marks(const std::string& path) {
  std::map<std::uint64_t, std::vector<std::uint64_t>> found;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.find(R"("name":"order")") == std::string::npos) continue;
    found[number_after(line, R"("pid":)")].push_back(number_after(line, R"("order":)"));
  }
  return found;
}

TEST_CASE("each order has one mark on each rank, however many operations it has", "[session][timeline]") {
  const std::string path = "session_timeline_test." + std::to_string(::getpid()) + ".json";
  SessionWorld world(2);
  REQUIRE(world.sessions[0]->start_timeline(path, true).ok());
  world.run([](runtime::Session& session, int rank) -> std::string {
    for (int round = 0; round < 3; ++round) {
      std::vector<Flight> flights(12, {std::vector<float>(4, static_cast<float>(rank + 1))});
      for (std::size_t i = 0; i < flights.size(); ++i) {  // two kinds, which are never fused
        const Status status =
            take_off(session, "t" + std::to_string(i), flights[i], [&](wire::Request& request) {
              request.reduce_op = i % 2 == 0 ? ReduceOp::kSum : ReduceOp::kMax;
            });
        if (!status.ok()) return status.message();
      }
      for (std::size_t i = 0; i < flights.size(); ++i) {
        std::string wrong = land(session, flights[i], i % 2 == 0 ? 3.0F : 2.0F);
        if (!wrong.empty()) return wrong;
      }
    }
    return {};
  });
  REQUIRE(world.sessions[0]->stop_timeline().ok());
  const auto by_rank = marks(path);
  std::remove(path.c_str());
  CHECK(by_rank.size() == 2);
  for (const auto& [rank, sequences] : by_rank) {
    INFO("rank " << rank);
    for (std::size_t i = 1; i < sequences.size(); ++i) CHECK(sequences[i] == sequences[i - 1] + 1);
  }
  world.shutdown();
}

}  // namespace
}  // namespace roundelay::contract
