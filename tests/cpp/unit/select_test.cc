// The choice of algorithms: the table, and ROUNDELAY_ALGORITHM.
#include "collective/tuning/select.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>

#include "tests/cpp/algorithm_names.h"
#include "tests/cpp/catch.h"

namespace roundelay::collective {
namespace {

AllreduceCall allreduce_of(std::size_t bytes) {
  AllreduceCall call;
  call.buffer.bytes = bytes;
  return call;
}

TEST_CASE("the table chooses by bytes and members", "[select]") {
  struct Case {
    std::size_t bytes;
    int size;
    std::string algorithm;
  };
  const Select select;
  for (const auto& [bytes, size, algorithm] :
       {Case{100, 1, "local"}, Case{0, 4, "local"}, Case{4, 2, "direct"}, Case{2 << 10, 64, "direct"},
        Case{(2 << 10) + 4, 3, "pairwise"}, Case{32 << 10, 2, "direct"}, Case{(32 << 10) + 4, 2, "pairwise"},
        Case{1 << 30, 64, "pairwise"}, Case{4, 65, "recursive_doubling"},
        Case{256 << 10, 1000, "recursive_doubling"}, Case{(256 << 10) + 4, 65, "ring"}}) {
    INFO(bytes << " bytes, " << size << " members");
    CHECK(select(allreduce_of(bytes), size).name == algorithm);
  }
  CHECK(select(BroadcastCall(), 5).name == std::string("binomial_tree"));
  CHECK(select(AllgatherCall(), 5).name == std::string("pairwise"));
  CHECK(select(AlltoallCall(), 5).name == std::string("pairwise"));
  CHECK(select(ReducescatterCall(), 5).name == std::string("pairwise"));
  CHECK(select(BarrierCall(), 5).name == std::string("dissemination"));
}

TEST_CASE("a forced algorithm carries out what it can", "[select]") {
  const Select ring = Select::by_name("ring").value();
  CHECK(ring(allreduce_of(4), 3).name == std::string("ring"));
  CHECK(ring(AllgatherCall(), 3).name == std::string("ring"));
  CHECK(ring(BroadcastCall(), 3).name == std::string("binomial_tree"));
  CHECK(ring(allreduce_of(4), 1).name == std::string("local"));
  AllreduceCall adasum = allreduce_of(4);
  adasum.reduce_op = ReduceOp::kAdasum;
  CHECK(ring(adasum, 3).name == std::string("recursive_doubling"));
  CHECK(Select::by_name("auto").value()(allreduce_of(4), 3).name == std::string("direct"));
}

TEST_CASE("what a call asks for comes first, where its operation has it", "[select]") {
  const Select ring = Select::by_name("ring").value();
  AllreduceCall call = allreduce_of(4);
  call.algorithm = "halving_doubling";
  CHECK(ring(call, 3).name == std::string("halving_doubling"));
  CHECK(Select()(call, 3).name == std::string("halving_doubling"));
  CHECK(ring(call, 1).name == std::string("local"));
  AllgatherCall gather;
  gather.algorithm = "halving_doubling";
  CHECK(ring(gather, 3).name == std::string("ring"));
}

Tuning tuning_of(const std::string& text) { return Tuning::parse("fabric mpi\n" + text).value(); }

TEST_CASE("a tuning chooses by operation, level, members and bytes, and the table does the rest",
          "[select][tuning]") {
  const Tuning tuning = tuning_of(
      "level rack 8\nlevel cluster 4\n"
      "choice rack allreduce 4 1000 recursive_doubling\nchoice rack allreduce 4 any ring\n"
      "choice rack allreduce 8 any halving_doubling\nchoice rack alltoall 2 any pairwise\n"
      "choice rack allgather 2 64 ring\nchoice cluster broadcast 2 any pipelined_tree\n");
  const Select rack = Select().with(tuning, "rack", false).value();
  const auto name = [](const Select& select, const Call& call, int size) {
    return std::string(select(call, size).name);
  };
  CHECK(name(rack, allreduce_of(1000), 4) == "recursive_doubling");
  CHECK(name(rack, allreduce_of(1001), 4) == "ring");
  CHECK(name(rack, allreduce_of(1 << 30), 7) == "ring");
  CHECK(name(rack, allreduce_of(1 << 30), 9) == "halving_doubling");
  CHECK(name(rack, allreduce_of(100), 3) == "direct");  // the tuning has nothing for so few
  CHECK(name(rack, allreduce_of(100), 1) == "local");
  CHECK(name(rack, AllgatherCall(), 2) == "ring");
  CHECK(name(rack, BroadcastCall(), 2) == "binomial_tree");
  const Select cluster = Select().with(tuning, "cluster", false).value();
  CHECK(name(cluster, BroadcastCall(), 2) == "pipelined_tree");
  CHECK(name(cluster, allreduce_of(1001), 4) == "direct");

  const Select forced = Select::by_name("pairwise").value().with(tuning, "rack", false).value();
  CHECK(name(forced, allreduce_of(1001), 4) == "pairwise");
  const Select same_sums = Select().with(tuning, "rack", true).value();
  CHECK(name(same_sums, allreduce_of(1001), 4) == "direct");
  CHECK(name(same_sums, AllgatherCall(), 2) == "ring");  // it adds nothing up
  AllreduceCall adasum = allreduce_of(4000);
  adasum.reduce_op = ReduceOp::kAdasum;
  CHECK(name(rack, adasum, 4) == "recursive_doubling");
}

TEST_CASE("a tuning with an algorithm that an operation lacks is refused", "[select][tuning]") {
  const Tuning tuning = tuning_of("level rack 8\nchoice rack broadcast 2 any ring\n");
  const Status refused = Select().with(tuning, "rack", false).status();
  CHECK(refused.code() == StatusCode::kInvalidArgument);
  CHECK(refused.message().find("\"ring\" for broadcast") != std::string::npos);
  CHECK(Select().with(tuning, "cluster", false).ok());
}

TEST_CASE("a tuning's text is read line by line, and a bad line is named", "[select][tuning]") {
  const Tuning tuning = tuning_of("level node 2\nlink node 1e-05 2.5e+09 1.5e-10\n");
  REQUIRE(tuning.link("node") != nullptr);
  CHECK(tuning.link("node")->alpha == 1e-05);
  CHECK(tuning.link("node")->bandwidth == 2.5e9);
  CHECK(tuning.link("node")->gamma == 1.5e-10);
  CHECK(tuning.link("rack") == nullptr);
  for (const std::string line : {"levels node 2", "level node", "link node 1e-05 0 1", "link node x 1 1",
                                 "choice node sum 2 any ring", "choice node allreduce 1 any ring",
                                 "choice node allreduce 2 4k ring", "choice node allreduce 2 any"}) {
    const Status refused = Tuning::parse("fabric mpi\n" + line + "\n").status();
    CHECK(refused.message() == "the tuning has a bad line: " + line);
  }
  CHECK_FALSE(Tuning::parse("level node 2\n").ok());
}

TEST_CASE("ROUNDELAY_ALGORITHM takes the names of the table, and others are refused with all names",
          "[select]") {
  std::set<std::string> names = {"auto"};
  for (const Operation operation : {Operation::kAllreduce, Operation::kBroadcast, Operation::kBarrier,
                                    Operation::kAllgather, Operation::kAlltoall, Operation::kReducescatter}) {
    for (const std::string_view name : algorithm_names(operation)) {
      names.emplace(name);
      CHECK(Select::by_name(name).ok());
    }
  }
  const Status refused = Select::by_name("rings").status();
  CHECK(refused.code() == StatusCode::kInvalidArgument);
  for (const std::string& name : names) CHECK(refused.message().find(name) != std::string::npos);
}

}  // namespace
}  // namespace roundelay::collective
