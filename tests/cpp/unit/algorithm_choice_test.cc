// Which level a group is on, and whether a tuning file was measured on such a cluster.
#include "runtime/startup/algorithm_choice.h"

#include <string>
#include <utility>
#include <vector>

#include "model/levels.h"
#include "tests/cpp/catch.h"

namespace roundelay::runtime {
namespace {

// Returns 2 racks with 2 nodes of 2 ranks.
bootstrap::Topology racks() {
  return {.levels = {{"node", {{"a", {0, 1}}, {"b", {2, 3}}, {"c", {4, 5}}, {"d", {6, 7}}}},
                     {"rack", {{"x", {0, 1, 2, 3}}, {"y", {4, 5, 6, 7}}}}}};
}

// Returns nodes of so many ranks, without racks.
bootstrap::Topology nodes(const std::vector<int>& sizes) {
  bootstrap::Level level{"node", {}};
  int rank = 0;
  for (const int size : sizes) {
    bootstrap::Part& part = level.parts.emplace_back();
    for (int i = 0; i < size; ++i) part.ranks.push_back(rank++);
  }
  return {.levels = {std::move(level)}};
}

Group group_of(std::vector<int> ranks) { return {0, std::move(ranks), 0}; }

const std::string kMeasured =
    "fabric mpi\nlevel node 2\nlevel rack 2\nlevel cluster 2\n"
    "choice rack allreduce 2 any ring\nchoice cluster allreduce 2 any halving_doubling\n";

std::string choice_for(const AlgorithmChoice& choice, std::vector<int> ranks) {
  collective::AllreduceCall call;
  call.buffer.bytes = 1 << 20;
  const int size = static_cast<int>(ranks.size());
  return choice.select_for(group_of(std::move(ranks)))(call, size).name;
}

TEST_CASE("a group is on the level of the smallest part that has all members", "[tuning]") {
  CHECK(level_of(group_of({0, 1}), racks()) == "node");
  CHECK(level_of(group_of({1, 3}), racks()) == "rack");
  CHECK(level_of(group_of({0, 1, 2, 3}), racks()) == "rack");
  CHECK(level_of(group_of({1, 5}), racks()) == "cluster");
  CHECK(level_of(group_of({0, 3}), nodes({3, 1})) == "cluster");
  CHECK(level_of(group_of({0, 3}), nodes({4})) == "node");
}

TEST_CASE("each level has the algorithms of its choices", "[tuning]") {
  const auto choice = AlgorithmChoice::create({}, kMeasured, racks(), "mpi");
  REQUIRE(choice.ok());
  REQUIRE(choice->tuning().has_value());
  CHECK(choice_for(*choice, {1, 3}) == "ring");
  CHECK(choice_for(*choice, {1, 5}) == "halving_doubling");
  CHECK(choice_for(*choice, {0, 1}) == "pairwise");  // the built-in table

  Config deterministic;
  deterministic.deterministic = true;
  const auto same_sums = AlgorithmChoice::create(deterministic, kMeasured, racks(), "mpi");
  REQUIRE(same_sums.ok());
  CHECK(choice_for(*same_sums, {1, 3}) == "pairwise");

  const auto untuned = AlgorithmChoice::create({}, "", racks(), "mpi");
  REQUIRE(untuned.ok());
  CHECK_FALSE(untuned->tuning().has_value());
  CHECK(choice_for(*untuned, {1, 3}) == "pairwise");
}

TEST_CASE("calls on GPUs' memory go by the level gpu, and else by their own threshold", "[tuning]") {
  const auto choice_of = [](const std::string& tuning, std::size_t bytes) {
    const auto choice = AlgorithmChoice::create({}, tuning, racks(), "mpi");
    REQUIRE(choice.ok());
    collective::AllreduceCall call;
    call.buffer.bytes = bytes;
    return std::string(choice->on_device()(call, 4).name);
  };
  CHECK(choice_of(kMeasured, 1 << 10) == "recursive_doubling");
  CHECK(choice_of(kMeasured, 1 << 20) == "halving_doubling");
  const std::string gpu = kMeasured + "level gpu 4\nchoice gpu allreduce 2 4096 binomial_tree\n";
  CHECK(choice_of(gpu, 1 << 10) == "binomial_tree");
  CHECK(choice_of(gpu, 8 << 10) == "recursive_doubling");
  // It is no part of the cluster.
  const std::string other = AlgorithmChoice::create({}, gpu, nodes({4, 4}), "mpi").status().message();
  CHECK(other.starts_with("the tuning file is of another cluster"));
  CHECK(other.find("gpu") == std::string::npos);
}

TEST_CASE("a level's link carries all ranks of the parts that it joins", "[tuning]") {
  const std::string measured = kMeasured +
                               "link node 1e-06 5e+09 1e-10\nlink rack 1e-05 2e+07 1e-10\n"
                               "link cluster 2e-05 3e+06 1e-10\n";
  using Links = std::vector<model::Link>;
  const auto choice = AlgorithmChoice::create({}, measured, racks(), "mpi");
  REQUIRE(choice.ok());
  CHECK(choice->links() == Links{{1e-6, 5e9}, {1e-5, 4e7}, {2e-5, 1.2e7}});
  // No measurement of the node: a rank a node joins nothing there.
  const auto one =
      AlgorithmChoice::create({}, kMeasured + "link cluster 2e-05 3e+06 1e-10\n", nodes({1, 1}), "mpi");
  REQUIRE(one.ok());
  CHECK(one->links() == Links{model::usual_link(0), {2e-5, 3e6}});
  CHECK(AlgorithmChoice::create({}, kMeasured, racks(), "mpi")->links().empty());
}

TEST_CASE("a tuning serves its cluster and a part of it, and no other", "[tuning]") {
  const auto why = [](const bootstrap::Topology& topology, const std::string& fabric) {
    return AlgorithmChoice::create({}, kMeasured, topology, fabric).status().message();
  };
  CHECK(why(racks(), "mpi").empty());
  CHECK(why(nodes({2, 1}), "mpi").empty());
  CHECK(why(racks(), "c10d") ==
        "the tuning file was measured over fabric mpi, and this job uses c10d; run roundelay tune on this "
        "cluster, or unset ROUNDELAY_TUNING");
  const std::string measured =
      "the tuning file is of another cluster: it was measured with 2 in a node, 2 in a rack, 2 in a cluster, "
      "and this job has ";
  const std::string cure = "; run roundelay tune on this cluster, or unset ROUNDELAY_TUNING";
  CHECK(why(nodes({3, 3}), "mpi") == measured + "3 in a node, 2 in a cluster" + cure);
  CHECK(why(nodes({1, 1, 1}), "mpi") == measured + "3 in a cluster" + cure);
  CHECK_FALSE(AlgorithmChoice::create({}, "fabric mpi\nwhat\n", racks(), "mpi").ok());
}

}  // namespace
}  // namespace roundelay::runtime
