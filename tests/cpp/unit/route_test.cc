// Ways of bytes over levels: carried out by all members, hop by hop, they bring every byte to every rank, and
// into every part of every level once.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "collective/levels/move_order.h"
#include "collective/levels/route.h"
#include "tests/cpp/catch.h"

namespace roundelay {
namespace {

namespace levels = collective::levels;
using levels::Holding;
using levels::Holdings;
using levels::Route;
using levels::Router;
using levels::Tree;

constexpr std::size_t kLine = 64;  // ways have whole lines, but for the ends of ranges

struct Shape {
  std::string name;
  Tree tree;
};

std::vector<Shape> shapes() {
  return {{"2 x 2", levels::tree_of_factors({2, 2})},
          {"2 x 3, dealt out", {{{0, 3}, {1, 4}, {2, 5}}, {{0, 1, 2, 3, 4, 5}}}},
          {"1 x 5", levels::tree_of_factors({1, 5})},
          {"2 x 2 x 3", levels::tree_of_factors({2, 2, 3})},
          {"3 + 4", {{{0, 1, 2}, {3, 4, 5, 6}}, {{0, 1, 2, 3, 4, 5, 6}}}},
          {"1 + 3", {{{0}, {1, 2, 3}}, {{0, 1, 2, 3}}}},
          {"(1 + 2) + 3", {{{0}, {1, 4}, {2, 3, 5}}, {{0, 1, 4}, {2, 3, 5}}, {{0, 1, 2, 3, 4, 5}}}},
          {"4 racks", levels::tree_of_factors({2, 3, 4})}};
}

// Carries out ways for all ranks, a line at a time, and counts what enters the parts.
class Cluster {
 public:
  explicit Cluster(const Tree& tree) : tree_(tree) {
    for (std::size_t rank = 0; rank < tree.back().front().size(); ++rank)
      routers_.emplace_back(tree, static_cast<int>(rank));
    has_.resize(routers_.size());
  }

  [[nodiscard]] int size() const { return static_cast<int>(routers_.size()); }
  [[nodiscard]] const Router& router(int rank) const { return routers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::set<std::size_t>& lines_of(int rank) { return has_[static_cast<std::size_t>(rank)]; }

  // `routes`: by rank. Returns what is wrong: bytes that their sender lacks, or messages of which the other
  // side knows nothing.
  std::string carry_out(const std::vector<Route>& routes, std::size_t hops) {
    for (std::size_t hop = 0; hop < hops; ++hop) {
      const auto before = has_;
      std::map<std::pair<int, int>, std::vector<std::size_t>> sent, received;  // offsets, in order
      for (int rank = 0; rank < size(); ++rank) {
        for (const auto& [from, to, bytes, part] : routes[static_cast<std::size_t>(rank)].hops[hop]) {
          if (from != rank && to != rank) return "a message of others";
          auto& offsets = (from == rank ? sent : received)[{from, to}];
          offsets.insert(offsets.end(), {bytes.offset, bytes.bytes});
          for (std::size_t at = bytes.offset; from == rank && at < bytes.offset + bytes.bytes; at += kLine) {
            if (!before[static_cast<std::size_t>(from)].contains(at)) return "a sender lacks its bytes";
            if (!lines_of(to).insert(at).second) return "a rank gets bytes twice";
            enter(from, to, at);
          }
        }
      }
      if (sent != received) return "senders and receivers disagree";
    }
    return gather(routes);
  }

  // Returns how often a line has entered the part of a level at most; and whether it has entered all.
  [[nodiscard]] int most_entries() const {
    int most = 0;
    for (const auto& [where, times] : entries_) most = std::max(most, times);
    return most;
  }

 private:
  void enter(int from, int to, std::size_t at) {
    for (std::size_t level = 0; level + 1 < tree_.size(); ++level) {
      for (std::size_t part = 0; part < tree_[level].size(); ++part) {
        const auto& ranks = tree_[level][part];
        const bool has_from = std::ranges::find(ranks, from) != ranks.end();
        const bool has_to = std::ranges::find(ranks, to) != ranks.end();
        if (has_to && !has_from) ++entries_[{level, part, at}];
      }
    }
  }

  std::string gather(const std::vector<Route>& routes) {
    const auto before = has_;
    for (int rank = 0; rank < size(); ++rank) {
      const std::vector<int>& node = router(rank).node();
      const auto& mine = routes[static_cast<std::size_t>(rank)].gathers;
      const auto& first = routes[static_cast<std::size_t>(node.front())].gathers;
      if (mine.size() != first.size()) return "ranks of a node gather differently";
      for (const Holdings& held : mine) {
        int last = -1;
        for (const auto& [holder, bytes] : held) {
          if (holder <= last || std::ranges::find(node, holder) == node.end())
            return "the holders are not the node's ranks in their order";
          last = holder;
          for (std::size_t at = bytes.offset; at < bytes.offset + bytes.bytes; at += kLine) {
            if (!before[static_cast<std::size_t>(holder)].contains(at)) return "a holder lacks its bytes";
            lines_of(rank).insert(at);
          }
        }
      }
    }
    return {};
  }

  const Tree tree_;
  std::vector<Router> routers_;
  std::vector<std::set<std::size_t>> has_;  // by rank: the offsets of its lines
  std::map<std::tuple<std::size_t, std::size_t, std::size_t>, int> entries_;
};

std::vector<Route> empty_routes(const Cluster& cluster, std::size_t hops) {
  return std::vector<Route>(static_cast<std::size_t>(cluster.size()), Route(hops));
}

std::set<std::size_t> lines(std::size_t offset, std::size_t bytes) {
  std::set<std::size_t> all;
  for (std::size_t at = offset; at < offset + bytes; at += kLine) all.insert(at);
  return all;
}

TEST_CASE("routes: a broadcast from any root enters each part once", "[levels]") {
  for (const Shape& shape : shapes()) {
    const int size = Cluster(shape.tree).size();
    for (const std::size_t bytes : {std::size_t{64}, std::size_t{40000}, std::size_t{300032}}) {
      for (int root = 0; root < size; ++root) {
        Cluster cluster(shape.tree);
        const std::size_t hops = cluster.router(0).broadcast_hops();
        cluster.lines_of(root) = lines(0, bytes);
        std::vector<Route> routes = empty_routes(cluster, hops);
        for (int rank = 0; rank < size; ++rank)
          cluster.router(rank).add_broadcast({root, {0, bytes}}, routes[static_cast<std::size_t>(rank)]);
        INFO(shape.name << ", " << bytes << " bytes from " << root);
        REQUIRE(cluster.carry_out(routes, hops) == "");
        CHECK(cluster.most_entries() == 1);
        for (int rank = 0; rank < size; ++rank) REQUIRE(cluster.lines_of(rank) == lines(0, bytes));
      }
    }
  }
}

TEST_CASE("routes: what one root has leaves its node once", "[levels]") {
  constexpr std::size_t kBytes = 300032;
  for (const Shape& shape : shapes()) {
    const Cluster cluster(shape.tree);
    for (int root = 0; root < cluster.size(); ++root) {
      Route route(cluster.router(root).broadcast_hops());
      cluster.router(root).add_broadcast({root, {0, kBytes}}, route);
      std::map<std::size_t, std::size_t> left;  // bytes by hop: a hop brings them to other parts of one level
      for (std::size_t hop = 0; hop < route.hops.size(); ++hop) {
        for (const levels::RouteMessage& message : route.hops[hop]) left[hop] += message.bytes.bytes;
        std::size_t forked = 0;
        for (const levels::RouteFork& fork : route.forks[hop])
          forked += fork.parts > 1 ? fork.bytes.bytes : 0;
        CHECK(forked == left[hop]);
      }
      INFO(shape.name << " from " << root);
      for (const auto& [hop, bytes] : left) CHECK((bytes == kBytes || bytes == 0));
    }
  }
}

TEST_CASE("routes: what all ranks have enters each part once", "[levels]") {
  for (const Shape& shape : shapes()) {
    for (const std::size_t unit : {std::size_t{64}, std::size_t{70016}}) {
      Cluster cluster(shape.tree);
      const std::size_t hops = cluster.router(0).gather_hops();
      std::vector<Route> routes = empty_routes(cluster, hops);
      std::size_t begin = 0;
      for (int from = 0; from < cluster.size(); ++from) {
        const std::size_t bytes = unit * static_cast<std::size_t>((from + 2) % 3);
        for (int rank = 0; rank < cluster.size() && bytes > 0; ++rank)
          cluster.router(rank).add_gathered({from, {begin, bytes}}, routes[static_cast<std::size_t>(rank)]);
        for (const int peer : cluster.router(from).node()) cluster.lines_of(peer).merge(lines(begin, bytes));
        begin += bytes;
      }
      // The ranks of a node have each other's bytes; a sender has its own ones among them.
      INFO(shape.name << ", units of " << unit);
      REQUIRE(cluster.carry_out(routes, hops) == "");
      CHECK(cluster.most_entries() == 1);
      for (int rank = 0; rank < cluster.size(); ++rank) REQUIRE(cluster.lines_of(rank) == lines(0, begin));
    }
  }
}

TEST_CASE("routes: ranks of a node share what comes in", "[levels]") {
  const Cluster cluster(levels::tree_of_factors({4, 2}));
  for (int rank = 4; rank < 8; ++rank) {
    Route route(1);
    cluster.router(rank).add_broadcast({0, {0, 1 << 20}}, route);
    REQUIRE(route.hops.front().size() == 1);
    CHECK(route.hops.front().front().bytes.bytes == std::size_t{1} << 18U);
  }
}

TEST_CASE("routes: neighbours in memory and in ranks are gathered together", "[levels]") {
  std::vector<Holdings> lists = {
      {{0, {0, 64}}}, {{1, {64, 64}}, {2, {128, 64}}}, {{2, {192, 64}}}, {{3, {320, 64}}}};
  levels::join_neighbours(lists);
  REQUIRE(lists.size() == 3);
  CHECK(lists[0].size() == 3);
  CHECK(range_of(lists[0]).bytes == 192);
  CHECK(lists[1].front().rank == 2);            // a rank has one range of a list
  CHECK(lists[2].front().bytes.offset == 320);  // a gap before it
}

TEST_CASE("routes: each hop of each round begins once, after the hop before it", "[levels]") {
  for (const std::uint64_t rounds : {1, 2, 7, 20}) {
    for (const std::size_t hops : {1, 2, 4}) {
      for (const std::uint64_t lag : {1, 3, 8}) {
        std::vector<std::size_t> next(rounds, 0);
        for (levels::HopOrder order(rounds, hops, lag); !order.over(); order.advance()) {
          const levels::HopTurn turn = order.next();
          REQUIRE(turn.hop == next[turn.round]);
          ++next[turn.round];
          const auto begun = rounds - static_cast<std::uint64_t>(std::ranges::count(next, 0U));
          const auto ended = static_cast<std::uint64_t>(std::ranges::count(next, hops));
          REQUIRE(begun - ended <= order.rounds_ahead());
        }
        CHECK(std::ranges::count(next, hops) == static_cast<std::ptrdiff_t>(rounds));
      }
    }
  }
}

}  // namespace
}  // namespace roundelay
