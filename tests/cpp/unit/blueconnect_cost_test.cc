// The cost formula of levels, against times that were worked out by hand, and the choices that follow.
#include "collective/blueconnect/cost.h"

#include <vector>

#include "tests/cpp/catch.h"

namespace roundelay::collective::blueconnect {
namespace {

using Levels = std::vector<LevelCost>;
using List = std::vector<Factor>;

constexpr Link kMemory{0, 1e10}, kNetwork{0, 1e9};

std::vector<std::size_t> members_of(const List& factors) {
  std::vector<std::size_t> members;
  for (const Factor& factor : factors) members.push_back(factor.members);
  return members;
}

TEST_CASE("one stage: 2 (p-1) alpha + 2 (p-1)/p S/W", "[blueconnect]") {
  const Levels nodes = {{1, kMemory}, {4, {1e-3, 1e6}}};
  CHECK(seconds_of(nodes, {{4, 1, 1}}, 1'000'000, 1) == Approx(2 * 3 * 1e-3 + 2 * 0.75));
}

// One chunk: the stages follow each other. Many: the busiest link counts, and one chunk fills the pipeline.
TEST_CASE("two stages, one chunk and many", "[blueconnect]") {
  const Levels levels = {{2, {0, 4e6}}, {2, {0, 1e6}}};
  const List two = {{2, 0, 0}, {2, 1, 1}};
  // Inside: 2 * 1/2 S / W. Between nodes each of the node's 2 ranks sends 2 * 1/2 of its S/2.
  CHECK(seconds_of(levels, two, 1'000'000, 500'000) == Approx(0.25 + 1.0));
  CHECK(seconds_of(levels, two, 1'000'000, 5'000) == Approx((0.25 + 1.0) / 100 + 0.99 * 1.0));
}

TEST_CASE("stages between racks use the links of nodes, too", "[blueconnect]") {
  const Levels levels = {{2, kMemory}, {2, {0, 1e6}}, {2, {0, 1e6}}};
  // A node sends S in its rack, and half of it to the other rack. A rack sends S.
  const List three = {{2, 0, 0}, {2, 1, 1}, {2, 2, 2}};
  CHECK(seconds_of(levels, three, 1'000'000, 250'000 / 1000) == Approx(1.5).epsilon(0.01));
  // Without a stage for racks, each of a rack's 4 ranks sends to half of the nodes: 2 S over the uplink.
  const List two = {{2, 0, 0}, {4, 1, 2}};
  CHECK(seconds_of(levels, two, 1'000'000, 500'000 / 1000) == Approx(2.0).epsilon(0.01));
}

TEST_CASE("levels that gain something become stages", "[blueconnect]") {
  constexpr std::size_t kBytes = 25 << 20;
  const auto choice = [](const std::vector<std::size_t>& parts, std::size_t most = 1) {
    Levels levels;
    for (std::size_t i = 0; i < parts.size(); ++i) levels.push_back({parts[i], usual_link(i)});
    return members_of(choose(levels, kBytes, most).factors);
  };
  using Sizes = std::vector<std::size_t>;
  CHECK(choice({8}) == Sizes{8});
  CHECK(choice({1, 8}) == Sizes{8});  // one rank a node: flat
  CHECK(choice({2, 2}) == Sizes{2, 2});
  CHECK(choice({8, 64}) == Sizes{8, 64});
  CHECK(choice({8, 127}) == Sizes{8, 127});  // there is no other way to make up a prime
  for (const std::size_t members : choice({8, 128})) CHECK(members <= 64);
  CHECK(choice({2, 2, 2}) == Sizes{2, 2, 2});
  CHECK(choice({8, 16, 4}) == Sizes{8, 16, 4});
  CHECK(choice({1, 4, 4}) == Sizes{4, 4});
  CHECK(choice({4, 1, 6}) == Sizes{4, 6});
}

TEST_CASE("links as fast as the nodes need are no reason for a stage", "[blueconnect]") {
  const Levels levels = {{2, kMemory}, {2, kNetwork}, {2, {0, 1e12}}};
  CHECK(choose(levels, 1 << 20, 1).factors == List{{2, 0, 0}, {4, 1, 2}});
}

TEST_CASE("many slow messages: a level is cut into several stages", "[blueconnect]") {
  const Levels slow = {{1, kMemory}, {36, {1e-2, 1e9}}};
  CHECK(members_of(choose(slow, 1 << 20, 3).factors) == std::vector<std::size_t>{4, 3, 3});
  CHECK(members_of(choose(slow, 1 << 20, 2).factors) == std::vector<std::size_t>{6, 6});
  CHECK(members_of(choose(slow, 1 << 20, 1).factors) == std::vector<std::size_t>{36});
}

TEST_CASE("chunks are small enough to fill the stages, and not smaller", "[blueconnect]") {
  const Levels quick = {{8, {1e-7, 1e10}}, {4, {1e-7, 1e10}}, {4, {1e-7, 1e10}}};
  const Levels slow = {{8, {1e-7, 1e10}}, {4, {1e-2, 1e9}}, {4, {1e-2, 1e9}}};
  CHECK(choose(quick, 25 << 20, 1).shard_bytes < choose(slow, 25 << 20, 1).shard_bytes);
  CHECK(choose(slow, 25 << 20, 1).shard_bytes == kShardBytes);
}

}  // namespace
}  // namespace roundelay::collective::blueconnect
