// Levels from the statements of ranks, and the errors of statements that do not fit.
#include "bootstrap/topology.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tests/cpp/catch.h"

namespace roundelay::bootstrap {
namespace {

Result<Topology> by_racks(const std::vector<std::string>& nodes, const std::vector<std::string>& racks) {
  std::vector<Statement> statements;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    statements.push_back({nodes[rank], racks[rank], ""});
  }
  return topology_of(statements, {});
}

Result<Topology> by_counts(const std::vector<std::string>& nodes, const std::string& counts) {
  std::vector<Statement> statements;
  for (const std::string& node : nodes) statements.push_back({node, counts, "switch"});
  return topology_of(statements, *LevelCounts::parse(counts));
}

void check_error(const Result<Topology>& topology, const std::string& expected) {
  REQUIRE_FALSE(topology.ok());
  CHECK(topology.status().code() == StatusCode::kInvalidArgument);
  CHECK(topology.status().message() == expected);
}

TEST_CASE("without statements there are only nodes", "[topology]") {
  const auto one = by_racks({"a"}, {""});
  REQUIRE(one.ok());
  CHECK(one->levels == std::vector<Level>{{"node", {{"a", {0}}}}});

  const auto dealt = by_racks({"z", "y", "z", "x"}, {"", "", "", ""});  // in the order of first ranks
  REQUIRE(dealt.ok());
  CHECK(dealt->levels == std::vector<Level>{{"node", {{"z", {0, 2}}, {"y", {1}}, {"x", {3}}}}});
  CHECK(dealt->unused.empty());
}

TEST_CASE("a node has its host's name, if no other node has it", "[topology]") {
  const std::string boot(36, '1');
  const std::string other_boot(36, '2');
  const auto names =
      by_racks({"a/" + boot, "b/" + boot, "b/" + other_boot, "rack/7", "/" + boot}, {"", "", "", "", ""});
  REQUIRE(names.ok());
  const std::vector<Part>& nodes = names->levels[0].parts;
  CHECK(nodes[0].name == "a");
  CHECK(nodes[1].name == "b/" + boot);
  CHECK(nodes[2].name == "b/" + other_boot);
  CHECK(nodes[3].name == "rack/7");
  CHECK(nodes[4].name == "/" + boot);
}

TEST_CASE("counts divide the nodes in the order of their first ranks", "[topology]") {
  const auto topology = by_counts({"d", "c", "b", "a", "a", "b", "c", "d"}, "pod=2,rack=1,node=2");
  REQUIRE(topology.ok());
  REQUIRE(topology->levels.size() == 3);
  CHECK(topology->levels[0].parts[3] == Part{"a", {3, 4}});
  CHECK(topology->levels[1] == Level{"rack", {{"0", {0, 1, 6, 7}}, {"1", {2, 3, 4, 5}}}});
  CHECK(topology->levels[2] == Level{"pod", {{"0", {0, 1, 6, 7}}, {"1", {2, 3, 4, 5}}}});

  const auto racks = by_counts({"a", "b", "c", "d", "e", "f"}, "zone=1,rack=3,node=2");
  REQUIRE(racks.ok());
  CHECK(racks->levels[1] == Level{"rack", {{"0", {0, 1}}, {"1", {2, 3}}, {"2", {4, 5}}}});
  CHECK(racks->levels[2] == Level{"zone", {{"0", {0, 1, 2, 3, 4, 5}}}});
  CHECK(by_counts({"a", "b"}, "node=2")->levels.size() == 1);
}

TEST_CASE("counts that do not fit the nodes", "[topology]") {
  check_error(
      by_counts({"a", "b", "a"}, "rack=2,node=4"),
      "ROUNDELAY_TOPOLOGY=\"rack=2,node=4\" counts 8 nodes, but the ranks are on 2: a (ranks 0, 2), b "
      "(rank 1); correct it, or give each rank the names of its parts, such as rack3");
  std::vector<std::string> many;
  for (int node = 0; node < 11; ++node) many.push_back("n" + std::to_string(node));
  const auto topology = by_counts(many, "node=10");
  REQUIRE_FALSE(topology.ok());
  CHECK(topology.status().message().find("n7 (rank 7) and 3 more;") != std::string::npos);
}

TEST_CASE("racks and pods by name; the same name in two pods is two racks", "[topology]") {
  const auto topology = by_racks({"a", "b", "c", "c", "d"}, {"q/x", "p/x", "p/y", "p/y", "q/x"});
  REQUIRE(topology.ok());
  REQUIRE(topology->levels.size() == 3);
  CHECK(topology->levels[1] == Level{"rack", {{"x", {0, 4}}, {"x", {1}}, {"y", {2, 3}}}});
  CHECK(topology->levels[2] == Level{"pod", {{"q", {0, 4}}, {"p", {1, 2, 3}}}});
  const auto deep = by_racks({"a", "b"}, {"f/e/d/c/b", "f/e/d/c/a"});
  REQUIRE(deep.ok());
  CHECK(deep->levels[3].name == "zone");
  CHECK(deep->levels[5] == Level{"level 6", {{"f", {0, 1}}}});
}

TEST_CASE("each part lies within one part of the next level", "[topology]") {
  for (unsigned pattern = 0; pattern < 4096; ++pattern) {  // six ranks, each on a node of its own
    std::vector<std::string> nodes;
    std::vector<std::string> racks;
    for (unsigned rank = 0, rest = pattern; rank < 6; ++rank, rest /= 4) {
      nodes.push_back(std::to_string(rank));
      racks.push_back(std::string(1, "pq"[rest % 2]) + "/" + "xy"[rest / 2 % 2]);
    }
    const auto topology = by_racks(nodes, racks);
    REQUIRE(topology.ok());
    for (std::size_t level = 0; level + 1 < topology->levels.size(); ++level) {
      for (const Part& part : topology->levels[level].parts) {
        int around = 0;
        for (const Part& outer : topology->levels[level + 1].parts) {
          around += std::ranges::includes(outer.ranks, part.ranks) ? 1 : 0;
        }
        REQUIRE(around == 1);
      }
    }
  }
}

TEST_CASE("racks that contradict each other", "[topology]") {
  check_error(
      by_racks({"a", "a", "b"}, {"x", "y", "y"}),
      "rank 0 has ROUNDELAY_TOPOLOGY=\"x\", and rank 1 has ROUNDELAY_TOPOLOGY=\"y\", but both ranks are "
      "on node a, which is in one rack only");
  check_error(
      by_racks({"a", "b"}, {"x", ""}),
      "rank 0 has ROUNDELAY_TOPOLOGY=\"x\", and rank 1 has no ROUNDELAY_TOPOLOGY: give every rank the "
      "name of its rack, or none");
  check_error(
      by_racks({"a", "b"}, {"", "x"}),
      "rank 0 has no ROUNDELAY_TOPOLOGY, and rank 1 has ROUNDELAY_TOPOLOGY=\"x\": give every rank the "
      "name of its rack, or none");
  check_error(
      by_racks({"a", "b"}, {"x", "p/y"}),
      "rank 0 has ROUNDELAY_TOPOLOGY=\"x\", and rank 1 has ROUNDELAY_TOPOLOGY=\"p/y\": give every rank "
      "equally many names");
  check_error(by_racks({"a", "b"}, {"p/x", "p/"}),
              "rank 1 has ROUNDELAY_TOPOLOGY=\"p/\": a name between the slashes is missing; write rack3 or "
              "pod1/rack3");
}

TEST_CASE("counts that ranks do not share, or that stand beside names", "[topology]") {
  const LevelCounts counts = *LevelCounts::parse("rack=2,node=1");
  check_error(topology_of({{"a", "rack=2,node=1", ""}, {"b", "", ""}}, counts),
              "rank 0 has ROUNDELAY_TOPOLOGY=\"rack=2,node=1\", and rank 1 has no ROUNDELAY_TOPOLOGY: set "
              "counts alike on all ranks");
  check_error(topology_of({{"a", "x", ""}, {"b", "rack=2,node=1", ""}}, {}),
              "rank 0 has ROUNDELAY_TOPOLOGY=\"x\", and rank 1 has ROUNDELAY_TOPOLOGY=\"rack=2,node=1\": set "
              "counts alike on all ranks");
}

TEST_CASE("the launcher's racks count if they fit together and users state nothing", "[topology]") {
  const auto used = topology_of({{"a", "", "s1/s3"}, {"b", "", "s1/s4"}}, {});
  REQUIRE(used.ok());
  REQUIRE(used->levels.size() == 3);
  CHECK(used->levels[1] == Level{"rack", {{"s3", {0}}, {"s4", {1}}}});
  CHECK(used->unused.empty());

  const auto unused = topology_of({{"a", "", "s3"}, {"a", "", "s4"}}, {});
  REQUIRE(unused.ok());
  CHECK(unused->levels.size() == 1);
  CHECK(unused->unused.find("rank 1 has launcher's rack=\"s4\"") != std::string::npos);

  const auto overruled = topology_of({{"a", "x", "s3"}, {"b", "y", ""}}, {});
  REQUIRE(overruled.ok());
  CHECK(overruled->levels[1] == Level{"rack", {{"x", {0}}, {"y", {1}}}});
}

}  // namespace
}  // namespace roundelay::bootstrap
