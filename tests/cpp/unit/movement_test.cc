// The cost of operations that move bytes: their formulas against the messages of the ways that carry them
// out.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "collective/algorithms/tree.h"
#include "collective/levels/route.h"
#include "model/levels.h"
#include "model/movement.h"
#include "model/techniques.h"
#include "tests/cpp/catch.h"

namespace roundelay::model {
namespace {

namespace levels = collective::levels;

constexpr std::size_t kPart = 840 << 10;  // bytes of each rank: they can be shared out evenly

// Nodes of these numbers of ranks; `in_rack` of them are a rack.
struct Shape {
  std::string name;
  std::vector<int> nodes;
  int in_rack;

  [[nodiscard]] levels::Tree tree() const {
    levels::Tree tree{levels::Parts{}};
    int rank = 0;
    for (const int size : nodes) {
      std::vector<int>& part = tree.front().emplace_back(static_cast<std::size_t>(size));
      std::iota(part.begin(), part.end(), rank);
      rank += size;
    }
    if (in_rack < static_cast<int>(nodes.size())) {
      levels::Parts racks;
      for (std::size_t node = 0; node < nodes.size(); ++node) {
        if (node % static_cast<std::size_t>(in_rack) == 0) racks.emplace_back();
        const std::vector<int>& ranks = tree.front()[node];
        racks.back().insert(racks.back().end(), ranks.begin(), ranks.end());
      }
      tree.push_back(racks);
    }
    std::vector<int> all(static_cast<std::size_t>(rank));
    std::iota(all.begin(), all.end(), 0);
    tree.push_back({all});
    return tree;
  }
  [[nodiscard]] Cluster cluster() const {
    std::vector<Level> made{{std::ranges::max(nodes), {}}, {in_rack, {}}};
    const int racks = static_cast<int>(nodes.size()) / in_rack;
    if (racks > 1) made.push_back({racks, {}});
    Cluster cluster{made};
    cluster.nodes = nodes;
    for (std::size_t level = 0; level < made.size(); ++level)
      cluster.levels[level].link.sharers = ranks_in_part(cluster, level);
    return cluster;
  }
};

std::vector<Shape> shapes() {
  return {{"2 x 2", {2, 2}, 2},           {"2 x 4", {2, 2, 2, 2}, 4},
          {"1 + 3", {1, 3}, 2},           {"2 + 4", {2, 4}, 2},
          {"3 + 4", {3, 4}, 2},           {"1 + 2 + 4", {1, 2, 4}, 3},
          {"2 x 2 x 2", {2, 2, 2, 2}, 2}, {"(1 + 2) + (3 + 2)", {1, 2, 3, 2}, 2}};
}

// Counts what the ends of a level send and get.
class Ends {
 public:
  explicit Ends(const levels::Tree& tree) : tree_(tree), sent_(tree.size()), received_(tree.size()) {
    for (std::size_t level = 1; level < tree.size(); ++level) {
      sent_[level].resize(tree[level - 1].size());
      received_[level].resize(tree[level - 1].size());
    }
  }

  // A message counts at the outermost level whose parts it joins.
  void add(int from, int to, double bytes) {
    for (std::size_t level = tree_.size() - 1; level > 0; --level) {
      const std::size_t source = part_of(level - 1, from), target = part_of(level - 1, to);
      if (source == target) continue;
      sent_[level][source] += bytes;
      received_[level][target] += bytes;
      return;
    }
  }
  [[nodiscard]] double most(std::size_t level) const {
    return std::max(std::ranges::max(sent_[level]), std::ranges::max(received_[level]));
  }

 private:
  [[nodiscard]] std::size_t part_of(std::size_t level, int rank) const {
    const auto has = [&](const std::vector<int>& part) { return std::ranges::binary_search(part, rank); };
    return static_cast<std::size_t>(std::ranges::find_if(tree_[level], has) - tree_[level].begin());
  }

  const levels::Tree tree_;
  std::vector<std::vector<double>> sent_, received_;  // by level and part
};

// Counts the messages of all ranks' ways. `root` -1: each rank's part goes to all.
Ends counted(const levels::Tree& tree, std::size_t bytes, int root) {
  Ends ends(tree);
  const int ranks = static_cast<int>(tree.back().front().size());
  for (int rank = 0; rank < ranks; ++rank) {
    const levels::Router router(tree, rank);
    levels::Route route(root < 0 ? router.gather_hops() : router.broadcast_hops());
    if (root >= 0) router.add_broadcast({root, {0, bytes}}, route);
    for (int source = 0; root < 0 && source < ranks; ++source)
      router.add_gathered({source, {static_cast<std::size_t>(source) * kPart, kPart}}, route);
    for (const std::vector<levels::RouteMessage>& hop : route.hops) {
      for (const levels::RouteMessage& message : hop) {
        if (message.from == rank)
          ends.add(message.from, message.to, static_cast<double>(message.bytes.bytes));
      }
    }
  }
  return ends;
}

}  // namespace

TEST_CASE("over levels the ends send and get the bytes of the formulas") {
  for (const Shape& shape : shapes()) {
    const Cluster cluster = shape.cluster();
    const auto bytes = static_cast<std::size_t>(ranks(cluster)) * kPart;
    const Ends gathered = counted(shape.tree(), bytes, -1);
    for (std::size_t level = 1; level < cluster.levels.size(); ++level) {
      CAPTURE(shape.name, level);
      for (const Movement movement : {Movement::kAllgather, Movement::kReducescatter}) {
        const auto predicted =
            bytes_sent(over_levels(cluster, movement, static_cast<double>(bytes)), cluster);
        CHECK(predicted[level] == Approx(gathered.most(level)).epsilon(1e-3));
      }
      for (int root = 0; root < ranks(cluster); ++root) {
        const Ends spread = counted(shape.tree(), bytes, root);
        for (const Movement movement : {Movement::kBroadcast, Movement::kReduce}) {
          const auto predicted =
              bytes_sent(over_levels(cluster, movement, static_cast<double>(bytes)), cluster);
          CHECK(predicted[level] == Approx(spread.most(level)).epsilon(1e-3));
        }
      }
    }
  }
}

TEST_CASE("a flat broadcast crosses ends as often as the tree's edges") {
  for (const Shape& shape : shapes()) {
    const levels::Tree tree = shape.tree();
    const Cluster cluster{
        {{ranks_in_part(shape.cluster(), 1), {}}, {static_cast<int>(shape.nodes.size()), {}}},
        1,
        shape.nodes};
    const int all = ranks(cluster);
    for (int root = 0; root < all; ++root) {
      Ends ends({tree.front(), tree.back()});
      for (int rank = 0; rank < all; ++rank) {
        for (const int child : collective::binomial_tree(all, rank, root).children) ends.add(rank, child, 1);
      }
      CAPTURE(shape.name, root);
      CHECK(bytes_sent(flat(cluster, Movement::kBroadcast, 1, root), cluster)[1] == Approx(ends.most(1)));
    }
  }
}

TEST_CASE("all pairs of a flat allgather between nodes cross the busiest node's end") {
  for (const Shape& shape : shapes()) {
    if (shape.in_rack < static_cast<int>(shape.nodes.size())) continue;
    const Cluster cluster = shape.cluster();
    const int all = ranks(cluster);
    double most = 0;
    for (const int node : shape.nodes) most = std::max<double>(most, node * (all - node));
    CAPTURE(shape.name);
    for (const Movement movement : {Movement::kAllgather, Movement::kReducescatter})
      CHECK(bytes_sent(flat(cluster, movement, all), cluster)[1] == Approx(most));
    CHECK(bytes_sent(flat(cluster, Movement::kReduce, 1), cluster)[1] == Approx(all - shape.nodes.front()));
  }
}

TEST_CASE("a reducescatter and an allgather over equal levels take an allreduce's time, and two calls more") {
  const Cluster cluster{{{4, {3e-6, 20e9, 1e-10}}, {6, {5e-6, 12.5e9, 2e-10, 4}}, {8, {7e-6, 3e9, 0, 24}}}};
  const auto once = [&](Movement movement) {
    Program program = over_levels(cluster, movement, 1e8);
    program.chunks = 1;
    return seconds(program, cluster);
  };
  CHECK(once(Movement::kReducescatter) + once(Movement::kAllgather) ==
        Approx(seconds(over_levels(cluster, Algorithm::kPairwise, 1e8), cluster) + 2 * 3e-6));
}

TEST_CASE("a broadcast over many nodes is on the root's link and the others' at once") {
  const Cluster cluster{{{1, {}}, {5, {0, 1e6}}}};
  const double bytes = 64 << 20;
  CHECK(seconds(over_levels(cluster, Movement::kBroadcast, bytes), cluster) ==
        Approx(bytes / 1e6 * (1 + 0.75 / 64)));  // one of 64 pieces is shared out after the last one has left
  const double few = 1000;                       // goes straight to all
  CHECK(seconds(over_levels(cluster, Movement::kBroadcast, few), cluster) == Approx(4 * few / 1e6));
}

TEST_CASE("one rank moves nothing") {
  const Cluster alone{{{1, {}}, {1, {}}}};
  for (const Movement movement :
       {Movement::kAllgather, Movement::kReducescatter, Movement::kBroadcast, Movement::kReduce}) {
    CHECK(over_levels(alone, movement, 1e6).stages.empty());
    CHECK(flat(alone, movement, 1e6).stages.empty());
  }
  CHECK_FALSE(movement_named("alltoall"));
  CHECK(movement_named("reduce") == Movement::kReduce);
}

TEST_CASE("nodes of different sizes send what techniques say") {
  const double bytes = 4e6;
  for (const std::vector<int>& nodes : {std::vector<int>{1, 3}, {2, 4}, {3, 4}}) {
    const Cluster cluster = Shape{"", nodes, 2}.cluster();
    CAPTURE(nodes);
    CHECK(ranks(cluster) == nodes[0] + nodes[1]);
    const auto sent = [&](const Program& program) { return bytes_sent(program, cluster); };
    // Two nodes: an allreduce of S bytes sends S from each.
    CHECK(sent(dense(cluster, {bytes, 4}, 4))[1] == Approx(bytes));
    CHECK(sent(dense(cluster, {bytes, 4}, 2))[1] == Approx(bytes / 2));
    CHECK(sent(csc(cluster, {bytes, 4}, {.keep = 0.5, .chunk_elements = 1e6}))[1] == Approx(bytes / 2 + 4));
    CHECK(sent(power_sgd(cluster, {bytes, 4}, {2, 3000, 1000}))[1] == Approx(4 * 2 * (3000 + 1000)));
    CHECK(sent(quantised(cluster, {bytes, 4}))[1] == Approx(bytes / 4 * 65 / 64));
    CHECK(sent(average(cluster, {bytes, 4}))[1] == Approx(bytes));
    CHECK(sent(daso_transfer(cluster, {bytes, 4}))[1] == Approx(bytes));
    CHECK(sent(within_node(cluster, {bytes, 4}))[1] == 0);
    // Top-k sends pairs of 8 bytes for a hundredth of the elements. Each shard of the smaller node's ranks is
    // added up and gathered among all ranks of the larger one.
    const std::vector<double> top = sent(top_k(cluster, {bytes, 4}, {.density = 0.01}));
    CHECK(top[1] == Approx(0.01 * bytes / 4 * 8));
    CHECK(top[0] == Approx(2 * bytes * (nodes[1] - 1) / nodes[0]));
  }
}

}  // namespace roundelay::model
