// Local and cross ranks, computed from all ranks' node ids.
#include <set>
#include <utility>

#include "bootstrap/rank_info.h"
#include "tests/cpp/catch.h"

namespace roundelay::bootstrap {
namespace {

using Nodes = std::vector<std::string>;

void check(const RankInfo& p, int local_rank, int local_size, int cross_rank, int cross_size,
           bool homogeneous) {
  CHECK(p.local_rank == local_rank);
  CHECK(p.local_size == local_size);
  CHECK(p.cross_rank == cross_rank);
  CHECK(p.cross_size == cross_size);
  CHECK(p.homogeneous == homogeneous);
}

TEST_CASE("one rank is alone everywhere", "[rank_info]") {
  const RankInfo p = rank_info_of(0, {"a"});
  CHECK(p.rank == 0);
  CHECK(p.size == 1);
  check(p, 0, 1, 0, 1, true);
}

TEST_CASE("nodes with equally many ranks", "[rank_info]") {
  const Nodes nodes = {"b", "b", "a", "a"};  // nodes are counted in the order of ranks, not of names
  check(rank_info_of(0, nodes), 0, 2, 0, 2, true);
  check(rank_info_of(1, nodes), 1, 2, 0, 2, true);
  check(rank_info_of(2, nodes), 0, 2, 1, 2, true);
  check(rank_info_of(3, nodes), 1, 2, 1, 2, true);
}

TEST_CASE("uneven nodes: a cross group has only nodes with that local rank", "[rank_info]") {
  const Nodes nodes = {"a", "b", "b", "b", "c", "c"};
  check(rank_info_of(0, nodes), 0, 1, 0, 3, false);
  check(rank_info_of(1, nodes), 0, 3, 1, 3, false);
  check(rank_info_of(2, nodes), 1, 3, 0, 2, false);
  check(rank_info_of(3, nodes), 2, 3, 0, 1, false);
  check(rank_info_of(4, nodes), 0, 2, 2, 3, false);
  check(rank_info_of(5, nodes), 1, 2, 1, 2, false);
}

TEST_CASE("ranks dealt out round robin", "[rank_info]") {
  const Nodes nodes = {"z", "y", "x", "z", "y", "x"};
  check(rank_info_of(0, nodes), 0, 2, 0, 3, true);
  check(rank_info_of(2, nodes), 0, 2, 2, 3, true);
  check(rank_info_of(3, nodes), 1, 2, 0, 3, true);
  check(rank_info_of(4, nodes), 1, 2, 1, 3, true);
}

TEST_CASE("each place is taken once, however ranks lie on nodes", "[rank_info]") {
  for (unsigned pattern = 0; pattern < 729; ++pattern) {  // six ranks on three nodes
    Nodes nodes;
    for (unsigned i = 0, rest = pattern; i < 6; ++i, rest /= 3)
      nodes.push_back(std::string(1, "cab"[rest % 3]));
    std::set<std::pair<std::string, int>> local;
    std::set<std::pair<int, int>> cross;
    for (int rank = 0; rank < 6; ++rank) {
      const RankInfo p = rank_info_of(rank, nodes);
      REQUIRE(p.local_rank < p.local_size);
      REQUIRE(p.cross_rank < p.cross_size);
      local.insert({nodes[static_cast<std::size_t>(rank)], p.local_rank});
      cross.insert({p.local_rank, p.cross_rank});
    }
    REQUIRE(local.size() == 6);
    REQUIRE(cross.size() == 6);
  }
}

TEST_CASE("a node id is what was asked for, or the same on each call", "[rank_info]") {
  CHECK(node_id("mine") == "mine");
  CHECK_FALSE(node_id("").empty());
  CHECK(node_id("") == node_id(""));
}

}  // namespace
}  // namespace roundelay::bootstrap
