// The cost formula of levels, against times that were worked out by hand, and the choices that follow.
#include "model/plans.h"

#include <vector>

#include "tests/cpp/catch.h"

namespace roundelay::model {
namespace {

using Levels = std::vector<Level>;
using List = std::vector<Factor>;

constexpr Link kMemory{0, 1e10}, kNetwork{0, 1e9};
constexpr std::size_t kMostShard = 256 << 10;

double time_of(const Levels& levels, const List& stages, std::size_t bytes, std::size_t shard_bytes) {
  return seconds_of(with_shared_ends(levels), stages, bytes, shard_bytes);
}

LevelChoice choice_of(const Levels& levels, std::size_t bytes, int most_factors) {
  return choose(with_shared_ends(levels), bytes, {most_factors, 64, kMostShard});
}

std::vector<int> members_of(const List& factors) {
  std::vector<int> members;
  for (const Factor& factor : factors) members.push_back(factor.members);
  return members;
}

TEST_CASE("one stage: 2 (p-1) alpha + 2 (p-1)/p S/W", "[model]") {
  const Levels nodes = {{1, kMemory}, {4, {1e-3, 1e6}}};
  CHECK(time_of(nodes, {{4, 1, 1}}, 1'000'000, 1) == Approx(2 * 3 * 1e-3 + 2 * 0.75));
}

// One chunk: the stages follow each other. Many: the busiest link counts, and one chunk fills the pipeline.
TEST_CASE("two stages, one chunk and many", "[model]") {
  const Levels levels = {{2, {0, 4e6}}, {2, {0, 1e6}}};
  const List two = {{2, 0, 0}, {2, 1, 1}};
  // Inside: 2 * 1/2 S / W. Between nodes each of the node's 2 ranks sends 2 * 1/2 of its S/2.
  CHECK(time_of(levels, two, 1'000'000, 500'000) == Approx(0.25 + 1.0));
  CHECK(time_of(levels, two, 1'000'000, 5'000) == Approx((0.25 + 1.0) / 100 + 0.99 * 1.0));
}

TEST_CASE("stages between racks use the links of nodes, too", "[model]") {
  const Levels levels = {{2, kMemory}, {2, {0, 1e6}}, {2, {0, 1e6}}};
  // A node sends S in its rack, and half of it to the other rack. A rack sends S.
  const List three = {{2, 0, 0}, {2, 1, 1}, {2, 2, 2}};
  CHECK(time_of(levels, three, 1'000'000, 250'000 / 1000) == Approx(1.5).epsilon(0.01));
  // Without a stage for racks, each of a rack's 4 ranks sends to half of the nodes: 2 S over the uplink.
  const List two = {{2, 0, 0}, {4, 1, 2}};
  CHECK(time_of(levels, two, 1'000'000, 500'000 / 1000) == Approx(2.0).epsilon(0.01));
}

TEST_CASE("levels that gain something become stages", "[model]") {
  constexpr std::size_t kBytes = 25 << 20;
  const auto choice = [](const std::vector<int>& parts, int most = 1) {
    Levels levels;
    for (std::size_t i = 0; i < parts.size(); ++i) levels.push_back({parts[i], usual_link(i)});
    return members_of(choice_of(levels, kBytes, most).factors);
  };
  using Sizes = std::vector<int>;
  CHECK(choice({8}) == Sizes{8});
  CHECK(choice({1, 8}) == Sizes{8});  // one rank a node: flat
  CHECK(choice({2, 2}) == Sizes{2, 2});
  CHECK(choice({8, 64}) == Sizes{8, 64});
  CHECK(choice({8, 127}) == Sizes{8, 127});  // there is no other way to make up a prime
  for (const int members : choice({8, 128})) CHECK(members <= 64);
  CHECK(choice({2, 2, 2}) == Sizes{2, 2, 2});
  CHECK(choice({8, 16, 4}) == Sizes{8, 16, 4});
  CHECK(choice({1, 4, 4}) == Sizes{4, 4});
  CHECK(choice({4, 1, 6}) == Sizes{4, 6});
}

TEST_CASE("links as fast as the nodes need are no reason for a stage", "[model]") {
  const Levels levels = {{2, kMemory}, {2, kNetwork}, {2, {0, 1e12}}};
  CHECK(choice_of(levels, 1 << 20, 1).factors == List{{2, 0, 0}, {4, 1, 2}});
}

TEST_CASE("many slow messages: a level is cut into several stages", "[model]") {
  const Levels slow = {{1, kMemory}, {36, {1e-2, 1e9}}};
  CHECK(members_of(choice_of(slow, 1 << 20, 3).factors) == std::vector<int>{4, 3, 3});
  CHECK(members_of(choice_of(slow, 1 << 20, 2).factors) == std::vector<int>{6, 6});
  CHECK(members_of(choice_of(slow, 1 << 20, 1).factors) == std::vector<int>{36});
}

TEST_CASE("chunks are small enough to fill the stages, and not smaller", "[model]") {
  const Levels quick = {{8, {1e-7, 1e10}}, {4, {1e-7, 1e10}}, {4, {1e-7, 1e10}}};
  const Levels slow = {{8, {1e-7, 1e10}}, {4, {1e-2, 1e9}}, {4, {1e-2, 1e9}}};
  CHECK(choice_of(quick, 25 << 20, 1).shard_bytes < choice_of(slow, 25 << 20, 1).shard_bytes);
  CHECK(choice_of(slow, 25 << 20, 1).shard_bytes == kMostShard);
}

struct Row {
  Levels levels;
  std::size_t bytes;
  int most_factors;
  LevelChoice choice;
};
// What the planner chose before `roundelay plan` and the gate had its formula.
const std::vector<Row> kBefore = {
    {{{2, {0.0, 9000000.0}}, {2, {0.0, 1000000.0}}},
     1048576,
     2,
     {{{2, 0, 0}, {2, 1, 1}}, 16384, 1.052216888888889}},
    {{{2, {3.3e-6, 90000000000.0}}, {2, {3.3e-5, 10000000000.0}}},
     26214400,
     1,
     {{{4, 0, 1}}, 262144, 0.00538148}},
    {{{8, {0.0, 9000000.0}}, {64, {0.0, 1000000.0}}},
     1048576,
     2,
     {{{8, 0, 0}, {64, 1, 1}}, 16384, 2.0898702222222223}},
    {{{8, {1e-8, 9000000000.0}}, {64, {1e-7, 1000000000.0}}},
     26214400,
     3,
     {{{8, 0, 0}, {4, 1, 1}, {2, 1, 1}, {8, 1, 1}}, 16384, 0.05186862977777777}},
    {{{8, {0.0, 9000000.0}}, {128, {0.0, 1000000.0}}},
     1048576,
     2,
     {{{8, 0, 0}, {2, 1, 1}, {64, 1, 1}}, 16384, 2.1317404444444445}},
    {{{8, {1e-6, 6000000000.0}}, {128, {1e-7, 1000000.0}}},
     26214400,
     1,
     {{{8, 0, 0}, {4, 1, 1}, {2, 1, 1}, {16, 1, 1}}, 16384, 52.01961483466667}},
    {{{8, {0.0, 9000000.0}}, {16, {0.0, 1000000.0}}, {4, {0.0, 1000000.0}}},
     1048576,
     2,
     {{{8, 0, 0}, {16, 1, 1}, {4, 2, 2}}, 262144, 3.742833777777778}},
    {{{8, {1e-6, 6000000000.0}}, {16, {1e-5, 1250000000.0}}, {4, {0.0, 1000000.0}}},
     26214400,
     3,
     {{{8, 0, 0}, {4, 1, 1}, {2, 1, 1}, {2, 1, 1}, {4, 2, 2}}, 16384, 39.32547139733333}},
    {{{1, {0.0, 9000000.0}}, {4, {0.0, 1000000.0}}, {4, {0.0, 1000000.0}}},
     1048576,
     2,
     {{{4, 1, 1}, {4, 2, 2}}, 16384, 2.039808}},
    {{{1, {1e-6, 6000000000.0}}, {4, {1e-5, 1250000000.0}}, {4, {0.0, 10000000000.0}}},
     26214400,
     1,
     {{{16, 1, 2}}, 262144, 0.039381599999999996}},
    {{{4, {0.0, 9000000.0}}, {1, {0.0, 1000000.0}}, {6, {0.0, 1000000.0}}},
     1048576,
     2,
     {{{4, 0, 0}, {6, 2, 2}}, 16384, 1.7585493333333333}},
    {{{4, {1e-8, 9000000000.0}}, {1, {1e-7, 500000000.0}}, {6, {2e-7, 333333333.3333333}}},
     26214400,
     3,
     {{{4, 0, 0}, {3, 2, 2}, {2, 2, 2}}, 32768, 0.131217596}},
    {{{3, {0.0, 9000000.0}}, {5, {0.0, 1000000.0}}, {7, {0.0, 1000000.0}}},
     1048576,
     2,
     {{{3, 0, 0}, {5, 1, 1}, {7, 2, 2}}, 16384, 2.4106845460317463}},
    {{{2, {0.0, 9000000.0}}, {96, {0.0, 1000000.0}}},
     1048576,
     2,
     {{{2, 0, 0}, {2, 1, 1}, {48, 1, 1}}, 16384, 2.0825884444444442}},
    {{{2, {1e-6, 6000000000.0}}, {96, {1e-7, 1000000.0}}},
     8589934597,
     1,
     {{{2, 0, 0}, {6, 1, 1}, {4, 1, 1}, {4, 1, 1}}, 262144, 17000.915824247837}},
    {{{4, {0.0, 9000000.0}}, {24, {0.0, 1000000.0}}, {6, {0.0, 1000000.0}}},
     1048576,
     2,
     {{{4, 0, 0}, {24, 1, 1}, {6, 2, 2}}, 262144, 3.93216}},
    {{{4, {1e-8, 9000000.0}}, {24, {1e-7, 1000000.0}}, {6, {1e-7, 1000000.0}}},
     1048576,
     2,
     {{{4, 0, 0}, {6, 1, 1}, {4, 1, 1}, {3, 2, 2}, {2, 2, 2}}, 262144, 3.9321622599999997}},
    {{{16, {0.0, 9000000.0}}, {72, {0.0, 1000000.0}}, {2, {0.0, 1000000.0}}},
     1048576,
     2,
     {{{16, 0, 0}, {36, 1, 1}, {2, 1, 1}, {2, 2, 2}}, 262144, 3.3350542222222224}},
    {{{16, {1e-6, 6000000000.0}}, {72, {1e-5, 1250000000.0}}, {2, {0.0, 1000000.0}}},
     1048576,
     2,
     {{{16, 0, 0}, {6, 1, 1}, {4, 1, 1}, {3, 1, 1}, {2, 2, 2}}, 262144, 1.050788099911111}},
};

TEST_CASE("plans and their times stay the same", "[model]") {
  for (const Row& row : kBefore) {
    CAPTURE(row.levels.size(), row.bytes, row.choice.seconds);
    const LevelChoice found = choice_of(row.levels, row.bytes, row.most_factors);
    CHECK(found.factors == row.choice.factors);
    CHECK(found.shard_bytes == row.choice.shard_bytes);
    CHECK(found.seconds == Approx(row.choice.seconds).epsilon(1e-14));  // other machines may fuse operations
  }
}

TEST_CASE("a stage of one member and an empty plan take no time", "[model]") {
  const Cluster cluster = with_shared_ends({{1, kMemory}, {4, kNetwork}});
  CHECK(seconds_of_way(cluster, {}, Algorithm::kRing, 1e6) == 0);
  CHECK(seconds_of_way(cluster, {{1, 0, 0}}, Algorithm::kRing, 1e6) == 0);
  CHECK(seconds_of_way(cluster, {{1, 0, 0}, {4, 1, 1}}, Algorithm::kRing, 1e6) == Approx(6e6 / 4e9));
}

TEST_CASE("factorisations into few factors", "[model]") {
  CHECK(factorisations(12, 1) == std::vector<std::vector<int>>{{12}});
  CHECK(factorisations(12, 2) == std::vector<std::vector<int>>{{2, 6}, {3, 4}, {4, 3}, {6, 2}, {12}});
  CHECK(factorisations(12).size() == 8);
}

}  // namespace
}  // namespace roundelay::model
