// Sessions whose reports go through leaders (negotiate/report_tree.h), with all threads.
#include <algorithm>

#include "control/clock_probe.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/session_trip.h"

namespace roundelay::contract {
namespace {

using runtime::Session;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kSize = 6;

// Three nodes of two ranks in a chain: rank 2 is the leader of 3, 4 and 5, and rank 4 of 5.
void lead(runtime::SessionParts& parts) {
  parts.nodes = {0, 0, 1, 1, 2, 2};
  parts.config.fan_out = 1;
}

Config quiet() {
  Config config;
  config.log_level = LogLevel::kError;
  return config;
}

}  // namespace

TEST_CASE("operations in any order are exact through leaders", "[session][leaders]") {
  constexpr std::size_t kTensors = 60;
  SessionWorld world(kSize, {}, lead);
  world.run([&](Session& session, int rank) { return sum_in_any_order(session, rank, kSize, kTensors); });
  // Rank 0 sends each order, and its clock, to its neighbour and to one leader.
  const auto stats = world.sessions[0]->stats();
  const auto clocks = 2 * static_cast<std::int64_t>(control::ClockProbe::kSamples);
  CHECK(stats.at("messages_sent") <= 2 * stats.at("orders_given") + clocks);
  world.shutdown();
}

TEST_CASE("through leaders a mismatch has one text on all ranks, and the job goes on", "[session][leaders]") {
  SessionWorld world(kSize, quiet(), lead);
  std::vector<std::string> texts(kSize);
  world.run([&](Session& session, int rank) -> std::string {
    for (int round = 0; round < 3; ++round) {
      Flight flight{std::vector<float>(rank == 5 ? 5 : 4, 1.0F)};
      if (const Status status = take_off(session, "w", flight); !status.ok()) return status.message();
      const auto ended = session.wait(flight.handle, Deadline::never());
      if (ended->code() != StatusCode::kMismatch) return "no mismatch: " + ended->message();
      if (round == 0) texts[static_cast<std::size_t>(rank)] = ended->message();
      std::string wrong = sum_once(session, rank, "v", kSize, true);
      if (!wrong.empty()) return wrong;
    }
    return {};
  });
  CHECK(texts[0].find("rank 5 has shape [5]") != std::string::npos);
  for (const std::string& text : texts) CHECK(text == texts[0]);
  world.shutdown();
}

TEST_CASE("a process set over some nodes has leaders of its own", "[session][leaders][sets]") {
  SessionWorld world(kSize, {}, lead);
  world.run([](Session& session, int rank) -> std::string {
    const std::vector<int> members = {1, 3, 4, 5};
    const auto set = add_set(session, members);
    if (!set.ok()) return set.status().message();
    for (int round = 0; round < 5; ++round) {
      if (std::ranges::binary_search(members, rank)) {
        Flight flight{std::vector<float>(8, 1.0F)};
        flight.process_set = *set;
        if (const Status status = take_off(session, "s", flight); !status.ok()) return status.message();
        if (std::string wrong = land(session, flight, 4.0F); !wrong.empty()) return wrong;
      }
      if (std::string wrong = sum_once(session, rank, "w", kSize); !wrong.empty()) return wrong;
    }
    return remove_set(session, *set).message();
  });
  world.shutdown();
}

TEST_CASE("a leader that stops is named, and so is a rank below it that is late", "[session][leaders]") {
  const int silent = GENERATE(2, 4, 5);
  Config config = quiet();
  config.stall_shutdown_time = milliseconds(300);
  SessionWorld world(kSize, config, lead);
  const bool stops = silent != 5;
  if (stops) world.stop(silent);
  std::vector<std::string> texts(kSize);
  world.run([&](Session& session, int rank) -> std::string {
    if (rank == silent) return {};
    Flight flight{std::vector<float>(4, 1.0F)};
    const Status status = take_off(session, "alone", flight);
    if (!status.ok()) return status.message();
    const auto ended = session.wait(flight.handle, Deadline::after(seconds(60)));
    if (!ended) return "still waiting after a minute";
    texts[static_cast<std::size_t>(rank)] = ended->message();
    return ended->ok() ? "it went well" : "";
  });
  const std::string who = "rank " + std::to_string(silent);
  for (const int rank : {0, 1, 3, 5}) {
    if (rank != silent) CHECK(texts[static_cast<std::size_t>(rank)].find("rank") != std::string::npos);
  }
  if (!stops) CHECK(texts[0].find("'alone' was given up: rank 5 did not submit it") != std::string::npos);
  if (stops) CHECK(texts[static_cast<std::size_t>(silent + 1)].find(who) != std::string::npos);
  world.stopped[static_cast<std::size_t>(silent)] = false;
  world.shutdown();
}

TEST_CASE("ranks and leaders leave in any order", "[session][leaders]") {
  const int first = GENERATE(0, 2, 4, 5);
  SessionWorld world(kSize, quiet(), lead);
  world.run([&](Session& session, int rank) { return sum_once(session, rank, "w", kSize); });
  world.sessions[static_cast<std::size_t>(first)]->shutdown();
  for (int rank = kSize - 1; rank >= 0; --rank) {
    if (rank == first) continue;
    Session& session = *world.sessions[static_cast<std::size_t>(rank)];
    Flight flight{std::vector<float>(4, 1.0F)};
    Status status = take_off(session, "late", flight);
    if (status.ok()) status = *session.wait(flight.handle, Deadline::never());
    CHECK(status.message().find("rank " + std::to_string(first)) != std::string::npos);
  }
  world.shutdown();
}

}  // namespace roundelay::contract
