// A plan as its members see it: together they make up the plan.
#include "collective/levels/member_plan.h"

#include <map>
#include <vector>

#include "collective/levels/schedule.h"
#include "tests/cpp/catch.h"

namespace roundelay::collective::levels {
namespace {

const Tree kThreeAndFour = {{{0, 1, 2}, {3, 4, 5, 6}}, {{0, 1, 2, 3, 4, 5, 6}}};
const Tree kUnevenRacks = {{{0}, {1, 4}, {2, 3, 5}}, {{0, 1, 4}, {2, 3, 5}}, {{0, 1, 2, 3, 4, 5}}};

int size_of(const Tree& tree) { return static_cast<int>(tree.back().front().size()); }

TEST_CASE("equal nodes: one group and one share a stage", "[member_plan]") {
  const MemberPlan plan = plan_of_member(tree_of_factors({2, 3, 4}), 23);
  CHECK(plan.even());
  CHECK(plan.units == 6);  // the last stage cuts for itself
  CHECK(plan.last_range == 1);
  REQUIRE(plan.stages.size() == 3);
  CHECK(plan.stages[0].groups == std::vector<Members>{{{22, 23}, 1}});
  CHECK(plan.stages[1].groups == std::vector<Members>{{{19, 21, 23}, 2}});
  CHECK(plan.stages[2].groups == std::vector<Members>{{{5, 11, 17, 23}, 3}});
  CHECK(plan.stages[1].shares[0].range == ElementRange{3, 3});
  CHECK(plan.stages[2].shares[0].range == ElementRange{5, 1});
}

TEST_CASE("the plan of a member's groups is that of the tree", "[member_plan]") {
  const Tree tree = tree_of_factors({3, 2, 4});
  for (int rank = 0; rank < 24; ++rank) {
    const MemberPlan whole = plan_of_member(tree, rank);
    std::vector<Members> groups;
    for (const MemberStage& stage : whole.stages) groups.push_back(stage.groups.front());
    const MemberPlan alike = even_plan(groups);
    CHECK(alike.even());
    CHECK(alike.units == whole.units);
    CHECK(alike.last_range == whole.last_range);
    for (std::size_t stage = 0; stage < 3; ++stage) {
      CHECK(alike.stages[stage].members == whole.stages[stage].members);
      CHECK(alike.stages[stage].shares[0].range == whole.stages[stage].shares[0].range);
      if (stage < 2) CHECK(alike.stages[stage].shares[0].shards == whole.stages[stage].shares[0].shards);
    }
  }
}

TEST_CASE("a member alone on its node has a group of its own there", "[member_plan]") {
  const MemberPlan plan = plan_of_member(kUnevenRacks, 0);
  CHECK_FALSE(plan.even());
  REQUIRE(plan.stages.size() == 3);
  CHECK_FALSE(plan.stages[0].even);
  CHECK(plan.stages[0].members == 3);
  CHECK(plan.stages[0].groups == std::vector<Members>{{{0}, 0}});
  CHECK(plan.stages[0].shares[0].range == ElementRange{0, plan.units});
  CHECK(plan.stages[1].groups == std::vector<Members>{{{0, 1}, 0}, {{0, 4}, 0}});
}

// The members of a group see it alike, and every unit is worked on by somebody in every stage.
TEST_CASE("members agree on groups and ranges", "[member_plan]") {
  for (const Tree& tree : {kThreeAndFour, kUnevenRacks, tree_of_factors({2, 2, 2}),
                           split_level(tree_of_factors({2, 7}), 1, 3)}) {
    using Range = std::pair<std::size_t, std::size_t>;
    std::map<std::pair<std::size_t, std::vector<int>>, std::map<Range, int>> seen;  // by stage and group
    const MemberPlan first = plan_of_member(tree, 0);
    for (int rank = 0; rank < size_of(tree); ++rank) {
      const MemberPlan plan = plan_of_member(tree, rank);
      CHECK(plan.units == first.units);
      CHECK(plan.last_range == first.last_range);
      REQUIRE(plan.stages.size() == first.stages.size());
      for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
        CHECK(plan.stages[stage].members == first.stages[stage].members);
        CHECK(plan.stages[stage].even == first.stages[stage].even);
        std::size_t end = 0;
        for (const Share& share : plan.stages[stage].shares) {
          CHECK(share.range.begin >= end);
          end = share.range.begin + share.range.count;
          const Members& group = plan.stages[stage].groups[share.group];
          CHECK(group.ranks[static_cast<std::size_t>(group.index)] == rank);
          ++seen[{stage, group.ranks}][{share.range.begin, share.range.count}];
        }
      }
    }
    for (const auto& [group, ranges] : seen) {
      for (const auto& [range, members] : ranges) {
        CHECK(members == static_cast<int>(group.second.size()));
      }
    }
  }
}

// Checks that the ranges of all chunks follow each other, and are no larger than the shard allows.
void check_chunks(const MemberPlan& plan, std::size_t bytes, std::size_t shard) {
  const Chunks chunks(bytes, 8, chunk_bytes_of(plan, shard), plan.units);
  std::size_t end = 0, wrong = 0;
  for (std::uint64_t i = 0; i < chunks.count(); ++i) {
    for (std::size_t unit = 0; unit < plan.units; ++unit) {
      const ByteRange range = chunks.bytes_of(i, {unit, 1});
      const bool fits = range.bytes * plan.last_range <= shard + 8 * plan.last_range;
      if (range.offset != end || range.bytes % 8 != 0 || !fits) ++wrong;
      end += range.bytes;
    }
  }
  CHECK(wrong == 0);
  CHECK(end == bytes);
}

TEST_CASE("chunks and ranges are all of the bytes", "[member_plan]") {
  for (const Tree& tree : {kThreeAndFour, tree_of_factors({3, 2})}) {
    const MemberPlan plan = plan_of_member(tree, 1);
    const std::size_t chunk = chunk_bytes_of(plan, kShardBytes);
    CHECK(chunk % 8 == 0);
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, chunk - 8, chunk, chunk + 8, 3 * chunk,
                                    40 * chunk + 8, (std::size_t{1} << 31U) + 8}) {
      INFO(bytes << " bytes");
      check_chunks(plan, bytes, kShardBytes);
      check_chunks(plan, bytes, shard_bytes_of(plan, bytes, kShardBytes, kLongShardBytes));
    }
  }
}

TEST_CASE("long calls have larger shards, and still many chunks", "[member_plan]") {
  constexpr std::size_t kMiB = 1 << 20, kLargest = ~std::size_t{0};
  for (const Tree& tree : {tree_of_factors({2, 2}), tree_of_factors({3, 2}), kThreeAndFour, kUnevenRacks}) {
    const MemberPlan plan = plan_of_member(tree, 0);
    const auto shard = [&](std::size_t bytes) {
      return shard_bytes_of(plan, bytes, kShardBytes, kLongShardBytes);
    };
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4} * 3, kMiB, 4 * kMiB + 4})
      CHECK(shard(bytes) == kShardBytes);
    for (const std::size_t bytes : {9 * kMiB + 1, 25 * kMiB, 100 * kMiB + 3, std::size_t{1} << 31U}) {
      CHECK(shard(bytes) >= kShardBytes);
      CHECK(shard(bytes) <= kLongShardBytes);
      const Chunks chunks(bytes, 1, chunk_bytes_of(plan, shard(bytes)), plan.units);
      CHECK((shard(bytes) == kShardBytes || chunks.count() >= 16));
    }
    CHECK(shard((std::size_t{1} << 31U) + 4) == kLongShardBytes);
    CHECK(shard(kLargest) == kLongShardBytes);
    CHECK(shard_bytes_of(plan, kLargest, kShardBytes, 0) == kShardBytes);
  }
  const MemberPlan even = plan_of_member(tree_of_factors({2, 2}), 0);  // a half is in the last stage
  CHECK(shard_bytes_of(even, 25 * kMiB, kShardBytes, kLongShardBytes) == 25 * kMiB / 32);
}

TEST_CASE("averages divide where all add up as many parts, else at once", "[member_plan]") {
  const Reduction average{.scale = {1.0, 24}};
  const auto divisors = [&](const Tree& tree, Reduction how) {
    std::vector<std::int64_t> found;
    for (const Scale& scale : split(how, plan_of_member(tree, 0))) found.push_back(scale.divisor);
    return found;
  };
  using Divisors = std::vector<std::int64_t>;
  CHECK(divisors(tree_of_factors({2, 3, 4}), average) == Divisors{2, 3, 4});
  CHECK(divisors(tree_of_factors({2, 3, 4}), {.scale = {1.0, 5}}) == Divisors{1, 1, 5});
  CHECK(divisors(kThreeAndFour, {.scale = {1.0, 7}}) == Divisors{7, 1});
  CHECK(divisors(tree_of_factors({2, 2}), {.reduce_op = ReduceOp::kMax, .scale = {1.0, 4}}) ==
        Divisors{1, 4});
}

}  // namespace
}  // namespace roundelay::collective::levels
