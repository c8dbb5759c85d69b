// Technique allreduce: the algorithm that it names carries the bucket, with the sums of a dense allreduce.
#include "collective/tuning/select.h"
#include "compress/registry.h"
#include "tests/cpp/algorithm_names.h"
#include "tests/cpp/unit/technique_members.h"

namespace roundelay::compress {
namespace {

// Returns the bytes that the first member sends for a bucket of `count` elements, and checks the sums.
std::size_t sent_by(const std::string& algorithm, int size, std::size_t count) {
  const TechniquePtr technique = make_technique("allreduce:algorithm=" + algorithm).value();
  TechniqueMembers group(size);
  group.set_up(*technique, {DType::kFloat32, ReduceOp::kSum, {}, {}}, count);
  for (std::size_t m = 0; m < group.members.size(); ++m) {
    for (std::size_t i = 0; i < count; ++i)
      group.members[m]->elements<float>()[i] = static_cast<float>(m + i % 17);
  }
  group.run(*technique);
  const auto ranks = static_cast<std::size_t>(size);
  for (auto& member : group.members) {
    for (std::size_t i = 0; i < count; ++i) {
      REQUIRE(member->elements<float>()[i] == static_cast<float>(ranks * (ranks - 1) / 2 + ranks * (i % 17)));
    }
    CHECK(member->bucket.state.empty());
  }
  return group.members.front()->wire_bytes;
}

}  // namespace

TEST_CASE("technique allreduce has every algorithm of an allreduce", "[technique]") {
  for (const std::string_view name : algorithm_names(Operation::kAllreduce)) {
    for (const int size : {1, 2, 3, 4}) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{4099}}) {
        INFO(name << ", " << count << " on " << size);
        sent_by(std::string(name), size, count);
      }
    }
  }
  CHECK_FALSE(make_technique("allreduce:algorithm=rings").ok());
}

TEST_CASE("technique allreduce takes the algorithm that it names, not the table's", "[technique]") {
  const std::size_t count = 4096, bytes = 4 * count;
  CHECK(sent_by("recursive_doubling", 4, count) == 2 * bytes);  // S log P
  CHECK(sent_by("ring", 4, count) == 2 * bytes * 3 / 4);        // 2 (P-1)/P S
  CHECK(sent_by("direct", 4, count) == 3 * bytes);              // S to each of the others
}

}  // namespace roundelay::compress
