// The choice of algorithms: the table, and ROUNDELAY_ALGORITHM.
#include "collective/select.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>

#include "base/knobs.h"
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
        Case{(2 << 10) + 4, 2, "pairwise"}, Case{1 << 30, 64, "pairwise"}, Case{4, 65, "recursive_doubling"},
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
  const auto knob = std::ranges::find(knobs(), "ALGORITHM", &Knob::name);
  REQUIRE(knob != knobs().end());
  std::string choices;
  for (const std::string& name : names) choices += (choices.empty() ? "" : "|") + name;
  CHECK(std::get<KnobOf<std::string>>(knob->value).choices == choices);

  const Status refused = Select::by_name("rings").status();
  CHECK(refused.code() == StatusCode::kInvalidArgument);
  for (const std::string& name : names) CHECK(refused.message().find(name) != std::string::npos);
}

}  // namespace
}  // namespace roundelay::collective
