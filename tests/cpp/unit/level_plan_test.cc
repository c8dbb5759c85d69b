// Plans of groups on topologies.
#include "runtime/startup/level_plan.h"

#include <string>
#include <vector>

#include "tests/cpp/catch.h"

namespace roundelay::runtime {
namespace {

using bootstrap::Level;
using bootstrap::Topology;
using collective::levels::Members;
using Sizes = std::vector<std::size_t>;

Group first_ranks(int count, int index = 0) {
  Group group;
  for (int rank = 0; rank < count; ++rank) group.ranks.push_back(rank);
  group.index = index;
  return group;
}

// Makes the topology of consecutive ranks: nodes of these sizes, racks of so many nodes (0: no racks).
Topology topology(const std::vector<int>& nodes, std::size_t rack = 0) {
  Topology made{{{"node", {}}}};
  int rank = 0;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    std::vector<int> ranks;
    for (int i = 0; i < nodes[node]; ++i) ranks.push_back(rank++);
    made.levels[0].parts.push_back({"n" + std::to_string(node), std::move(ranks)});
  }
  if (rack == 0) return made;
  made.levels.push_back({"rack", {}});
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    if (node % rack == 0) made.levels[1].parts.push_back({"r" + std::to_string(node / rack), {}});
    const std::vector<int>& ranks = made.levels[0].parts[node].ranks;
    std::vector<int>& all = made.levels[1].parts.back().ranks;
    all.insert(all.end(), ranks.begin(), ranks.end());
  }
  return made;
}

Sizes sizes(const Result<LevelPlan>& plan) {
  REQUIRE(plan.ok());
  Sizes sizes;
  for (const auto& factor : plan->factors) sizes.push_back(factor.members);
  CHECK(plan->plan.stages.size() == sizes.size());
  return sizes;
}

Result<LevelPlan> first_of(Result<std::vector<LevelPlan>> plans) {
  if (!plans.ok()) return plans.status();
  CHECK(plans->size() == 1);
  return plans->front();
}

Result<LevelPlan> plan_of(const Group& group, const Topology& topology,
                          const std::vector<model::Link>& measured = {}) {
  return first_of(plan_levels(group, topology, {.measured = measured}));
}

Result<LevelPlan> forced(const Group& group, const Topology& topology, const std::string& factors) {
  return first_of(plan_levels(group, topology, {.forced = *FactorLists::parse(factors)}));
}

TEST_CASE("nodes and racks become stages", "[level_plan]") {
  CHECK(sizes(plan_of(first_ranks(4), topology({4}))) == Sizes{4});
  CHECK(sizes(plan_of(first_ranks(4), topology({1, 1, 1, 1}))) == Sizes{4});
  CHECK(sizes(plan_of(first_ranks(4), topology({2, 2}))) == Sizes{2, 2});
  CHECK(sizes(plan_of(first_ranks(7), topology({3, 4}))) == Sizes{4, 2});
  CHECK(sizes(plan_of(first_ranks(8), topology({2, 2, 2, 2}, 2))) == Sizes{2, 2, 2});
}

TEST_CASE("two levels keep the shard that was measured for them", "[level_plan]") {
  const auto plan = plan_of(first_ranks(6), topology({3, 3}));
  CHECK(plan->shard_bytes == std::size_t{256} << 10U);
  CHECK(plan->in_node(0));
  CHECK_FALSE(plan->in_node(1));
}

TEST_CASE("shards grow in long calls, unless a last stage would take another algorithm", "[level_plan]") {
  const auto most = [](int nodes) {
    const Topology pairs = topology(std::vector<int>(static_cast<std::size_t>(nodes), 2));
    return forced(first_ranks(2 * nodes), pairs, "2," + std::to_string(nodes))->most_shard_bytes();
  };
  CHECK(most(2) == collective::levels::kLongShardBytes);
  CHECK(most(64) == collective::levels::kLongShardBytes);
  CHECK(most(65) == collective::levels::kShardBytes);
  LevelPlan chosen = *plan_of(first_ranks(4), topology({2, 2}));
  chosen.shard_bytes = collective::levels::kShardBytes / 2;
  CHECK(chosen.most_shard_bytes() == chosen.shard_bytes);  // the formula's choice
  CHECK(chosen.stages_text("shm", "tcp") == "2 (shm) x 2 (tcp), in chunks of 256 KiB");
  chosen.shard_bytes = collective::levels::kShardBytes;
  CHECK(chosen.stages_text("shm", "tcp") == "2 (shm) x 2 (tcp), in chunks of 512 to 2048 KiB");
}

TEST_CASE("a process set's levels are those of its own ranks", "[level_plan]") {
  Topology dealt{{{"node", {{"a", {0, 3, 5}}, {"b", {1, 2, 4}}}}}};
  // Of node a ranks 3 and 5, of node b ranks 1 and 4. Node b has the first rank.
  const Group group{7, {1, 3, 4, 5}, 3};
  const auto plan = plan_of(group, dealt);
  REQUIRE(sizes(plan) == Sizes{2, 2});
  CHECK(plan->plan.stages[0].groups == std::vector<Members>{{{1, 3}, 1}});
  CHECK(plan->plan.stages[1].groups == std::vector<Members>{{{2, 3}, 1}});
}

TEST_CASE("measured links cut levels, if messages are slow", "[level_plan]") {
  const std::vector<model::Link> links = {{1e-6, 1e10}, {1e-3, 1e9}};
  const Topology many = topology(std::vector<int>(12, 2));
  CHECK(sizes(plan_of(first_ranks(24), many)) == Sizes{2, 12});
  CHECK(sizes(plan_of(first_ranks(24), many, links)) == Sizes{2, 3, 2, 2});
}

TEST_CASE("forced factors: several in a level, one for several levels, and 1", "[level_plan]") {
  const Topology racks = topology({2, 2, 2, 2, 2, 2}, 3);
  CHECK(sizes(forced(first_ranks(12), racks, "2,3,2")) == Sizes{2, 3, 2});
  CHECK(sizes(forced(first_ranks(12), racks, "2,6")) == Sizes{2, 6});
  CHECK(sizes(forced(first_ranks(12), racks, "12")) == Sizes{12});
  CHECK(sizes(forced(first_ranks(12), racks, "1,2,1,3,2,1")) == Sizes{2, 3, 2});
  CHECK(sizes(forced(first_ranks(12), topology({2, 2, 2, 2, 2, 2}), "2,2,3")) == Sizes{2, 2, 3});
  CHECK(sizes(forced(first_ranks(8), topology({8}), "2,2,2")) == Sizes{2, 2, 2});
  CHECK(sizes(forced(first_ranks(8), topology({4, 4}), "2,2,2")) == Sizes{2, 2, 2});
  CHECK(sizes(forced(first_ranks(7), topology({3, 4}), "4,2")) == Sizes{4, 2});
  CHECK(forced(first_ranks(8), topology({4, 4}), "2,2,2")->in_node(1));
  const auto six = forced(first_ranks(12, 5), topology({2, 2, 2, 2, 2, 2}), "2,2,3");
  CHECK(six->plan.stages[1].groups == std::vector<Members>{{{5, 7}, 0}});
  CHECK(six->plan.stages[2].groups == std::vector<Members>{{{1, 5, 9}, 1}});
}

TEST_CASE("factors that do not fit: one error, the same on all ranks", "[level_plan]") {
  for (const char* const factors :
       {"2", "2,2", "2,3", "3,4", "4,3", "2,2,3", "2,3,3", "2,3,2,2", "24", "5"}) {
    INFO(factors);
    const Topology racks = topology({2, 2, 2, 2, 2, 2}, 3);
    const auto plan = forced(first_ranks(12, 3), racks, factors);
    REQUIRE_FALSE(plan.ok());
    CHECK(plan.status().code() == StatusCode::kInvalidArgument);
    CHECK(plan.status().message() ==
          "ROUNDELAY_FACTORS=" + std::string(factors) +
              " does not fit 2 ranks per node, 3 nodes per rack, 2 racks: give, from the inside out, factors "
              "that make up each of these numbers");
  }
}

std::vector<Sizes> all_sizes(const Result<std::vector<LevelPlan>>& plans) {
  REQUIRE(plans.ok());
  std::vector<Sizes> all;
  for (const LevelPlan& plan : *plans) all.push_back(sizes(Result<LevelPlan>(plan)));
  return all;
}

TEST_CASE("several plans: that of one wish first, then the fastest others", "[level_plan]") {
  const auto several = [](const Topology& topology, int ranks) {
    const auto one = plan_of(first_ranks(ranks), topology);
    const auto plans = all_sizes(plan_levels(first_ranks(ranks), topology, {.several = true}));
    CHECK(plans.front() == sizes(one));
    return plans;
  };
  CHECK(several(topology({2, 2, 2, 2}, 2), 8) == std::vector<Sizes>{{2, 2, 2}, {2, 4}});
  CHECK(several(topology({2, 2, 2, 2}), 8) == std::vector<Sizes>{{2, 4}, {2, 2, 2}});
  CHECK(several(topology({2, 2}), 4) == std::vector<Sizes>{{2, 2}});
  CHECK(several(topology({4}), 4) == std::vector<Sizes>{{4}});
  CHECK(several(topology({1, 1, 1, 1}, 2), 4) == std::vector<Sizes>{{2, 2}, {4}});
  CHECK(several(topology(std::vector<int>(12, 2)), 24).size() == 3);
}

TEST_CASE("several forced plans differ between nodes alone", "[level_plan]") {
  const auto plans = [](const char* text) {
    return plan_levels(first_ranks(8), topology({4, 4}), {.forced = *FactorLists::parse(text)});
  };
  CHECK(all_sizes(plan_levels(first_ranks(16), topology({4, 4, 4, 4}),
                              {.forced = *FactorLists::parse("4,2,2+4,4")})) ==
        std::vector<Sizes>{{4, 2, 2}, {4, 4}});
  CHECK(plans("4,2+2,2,2").status().message() ==
        "ROUNDELAY_FACTORS=4,2+2,2,2: its lists must begin with the same factors inside the nodes");
  CHECK(plans("4,2+4,3").status().message().starts_with("ROUNDELAY_FACTORS=4,3 does not fit"));
}

}  // namespace
}  // namespace roundelay::runtime
