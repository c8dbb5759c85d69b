// Plans of BlueConnect, carried out on integers in memory.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collective/levels/plan.h"
#include "tests/cpp/catch.h"

namespace roundelay::collective::levels {
namespace {

using Buffer = std::vector<long>;

Buffer own(std::size_t rank, std::size_t elements) {
  Buffer buffer(elements);
  for (std::size_t i = 0; i < elements; ++i)
    buffer[i] = static_cast<long>((rank + 1) * 1000 + i * (rank + 3));
  return buffer;
}

// Elements that ranks of `inner` have sent to ranks of another part of it.
struct Sent {
  const Parts* inner;
  std::map<std::size_t, std::size_t> by_part{};
  void count(int from, int to, std::size_t elements) {
    const auto part_of = [&](int rank) {
      return std::ranges::find_if(*inner,
                                  [&](const auto& part) { return std::ranges::count(part, rank) > 0; });
    };
    if (part_of(from) != part_of(to))
      by_part[static_cast<std::size_t>(part_of(from) - inner->begin())] += elements;
  }
};

// Carries out the plan on all ranks. Checks the sums, and that the groups of a stage touch no element of a
// rank twice. Poisons the elements that a rank does not hold, so that a stage which reads them gives a wrong
// sum.
void carry_out(const Tree& tree, std::size_t elements, Sent* sent = nullptr) {
  constexpr long kPoison = -1'000'000'007;
  const std::size_t ranks = tree.back().front().size();
  std::vector<Buffer> buffers;
  Buffer sum(elements, 0);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    buffers.push_back(own(rank, elements));
    for (std::size_t i = 0; i < elements; ++i) sum[i] += buffers.back()[i];
  }
  const std::vector<Stage> stages = plan(tree, elements);
  for (const Stage& stage : stages) {
    std::set<std::pair<int, std::size_t>> touched;
    for (const StageGroup& group : stage.groups) {
      REQUIRE(group.ranks.size() > 1);
      REQUIRE(group.shards.size() == group.ranks.size());
      REQUIRE(group.shards.front().begin == group.range.begin);
      Buffer total(group.range.count, 0);
      for (const int rank : group.ranks) {
        for (std::size_t i = 0; i < total.size(); ++i) {
          long& element = buffers[static_cast<std::size_t>(rank)][group.range.begin + i];
          REQUIRE(touched.emplace(rank, group.range.begin + i).second);
          total[i] += std::exchange(element, kPoison);
        }
      }
      for (std::size_t member = 0; member < group.ranks.size(); ++member) {
        const ElementRange& shard = group.shards[member];
        for (std::size_t i = shard.begin; i < shard.begin + shard.count; ++i) {
          buffers[static_cast<std::size_t>(group.ranks[member])][i] = total[i - group.range.begin];
        }
        for (const int from : group.ranks) {
          if (sent != nullptr) sent->count(from, group.ranks[member], shard.count);
        }
      }
    }
  }
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    for (const StageGroup& group : stage->groups) {
      for (std::size_t member = 0; member < group.ranks.size(); ++member) {
        const ElementRange& shard = group.shards[member];
        const Buffer& source = buffers[static_cast<std::size_t>(group.ranks[member])];
        for (const int to : group.ranks) {
          std::copy_n(
              source.begin() + static_cast<std::ptrdiff_t>(shard.begin), shard.count,
              buffers[static_cast<std::size_t>(to)].begin() + static_cast<std::ptrdiff_t>(shard.begin));
          if (sent != nullptr) sent->count(group.ranks[member], to, shard.count);
        }
      }
    }
  }
  for (const Buffer& buffer : buffers) REQUIRE(buffer == sum);
}

TEST_CASE("every factorisation of 8 ranks, for any number of elements", "[levels]") {
  for (const std::vector<int>& factors : std::vector<std::vector<int>>{
           {8}, {1, 8}, {8, 1}, {2, 4}, {4, 2}, {2, 2, 2}, {1}, {3, 2}, {2, 3, 2}}) {
    const Tree tree = tree_of_factors(factors);
    for (const std::size_t elements : {0U, 1U, 2U, 7U, 8U, 9U, 64U, 1001U}) carry_out(tree, elements);
  }
}

TEST_CASE("equal parts: a rank is in one group of each stage", "[levels]") {
  const auto stages = plan(tree_of_factors({2, 3, 4}), 240);
  REQUIRE(stages.size() == 3);
  const std::vector<std::size_t> sizes = {2, 3, 4};
  std::size_t count = 240;
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(stages[i].level == i);
    CHECK(stages[i].groups.size() == 24 / sizes[i]);
    std::set<int> ranks;
    for (const StageGroup& group : stages[i].groups) {
      CHECK(group.range.count == count);
      ranks.insert(group.ranks.begin(), group.ranks.end());
    }
    CHECK(ranks.size() == 24);
    count /= sizes[i];
  }
  CHECK(stages[1].groups.front().ranks == std::vector<int>{0, 2, 4});
  CHECK(stages[2].groups.front().ranks == std::vector<int>{0, 6, 12, 18});
}

TEST_CASE("nodes of 3 and 4 ranks meet at the cuts of both", "[levels]") {
  const Tree tree = {{{0, 1, 2}, {3, 4, 5, 6}}, {{0, 1, 2, 3, 4, 5, 6}}};
  for (const std::size_t elements : {0U, 1U, 5U, 12U, 84U, 1001U}) carry_out(tree, elements);
  const auto stages = plan(tree, 120);
  REQUIRE(stages.size() == 2);
  std::vector<std::vector<int>> pairs;
  std::vector<std::size_t> begins;
  for (const StageGroup& group : stages[1].groups) {
    pairs.push_back(group.ranks);
    begins.push_back(group.range.begin);
  }
  CHECK(pairs == std::vector<std::vector<int>>{{0, 3}, {0, 4}, {1, 4}, {1, 5}, {2, 5}, {2, 6}});
  CHECK(begins == std::vector<std::size_t>{0, 30, 40, 60, 80, 90});
}

TEST_CASE("each of m nodes sends 2 (m-1)/m of the buffer, however many ranks it has", "[levels]") {
  const std::vector<Tree> trees = {tree_of_factors({4, 2}),
                                   tree_of_factors({2, 4}),
                                   tree_of_factors({1, 8}),
                                   {{{0, 1, 2}, {3, 4, 5, 6}}, {{0, 1, 2, 3, 4, 5, 6}}},
                                   {{{0}, {1, 2}, {3, 4, 5}}, {{0, 1, 2, 3, 4, 5}}}};
  for (const Tree& tree : trees) {
    Sent sent{tree.data()};
    constexpr std::size_t kElements = 5040;
    carry_out(tree, kElements, &sent);
    const std::size_t nodes = tree[0].size();
    REQUIRE(sent.by_part.size() == nodes);
    for (const auto& [node, elements] : sent.by_part) CHECK(elements == 2 * (nodes - 1) * kElements / nodes);
  }
}

TEST_CASE("racks at the end of a slow uplink: each sends the buffer once, if there are two", "[levels]") {
  const Tree tree = tree_of_factors({2, 2, 2});
  Sent sent{&tree[1]};
  carry_out(tree, 840, &sent);
  CHECK(sent.by_part == std::map<std::size_t, std::size_t>{{0, 840}, {1, 840}});
}

TEST_CASE("several factors within one level, also where they do not divide it", "[levels]") {
  const Tree nodes = tree_of_factors({2, 6});
  CHECK(split_level(nodes, 1, 2) == tree_of_factors({2, 2, 3}));
  CHECK(split_level(nodes, 1, 3) == tree_of_factors({2, 3, 2}));
  CHECK(split_level(tree_of_factors({8}), 0, 2) == tree_of_factors({2, 4}));
  const Tree uneven = split_level(nodes, 1, 4);
  CHECK(uneven[1] == Parts{{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11}});
  carry_out(uneven, 1001);
}

TEST_CASE("any tree", "[levels]") {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const std::size_t ranks = 1 + random() % 11;
    std::vector<int> order(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) order[rank] = static_cast<int>(rank);
    Tree tree = {{order}};
    std::ranges::shuffle(tree[0][0], random);
    for (std::size_t more = random() % 3; more > 0; --more) tree = split_level(tree, 0, 1 + random() % 4);
    INFO("round " << round);
    carry_out(tree, random() % 200);
  }
}

}  // namespace
}  // namespace roundelay::collective::levels
