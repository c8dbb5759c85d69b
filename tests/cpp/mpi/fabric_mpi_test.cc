// The fabric contract over MPI, one process a member, with messages cut small.
#include "collective/mpi/mpi_fabric.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/fabric_contract.h"
#include "tests/cpp/in_time.h"
#include "tests/cpp/mpi/session.h"

namespace roundelay::contract {
namespace {

using collective::make_mpi_fabric;
using collective::MpiFabricOptions;

class MpiMedium final : public Medium {
 public:
  explicit MpiMedium(std::size_t most_message_bytes) : most_message_bytes_(most_message_bytes) {}
  [[nodiscard]] int largest_group() const override { return session().size(); }
  std::string run(int size, Select select, const Part& part) override {
    if (session().rank() >= size) return {};
    MpiFabricOptions options;
    options.deadline = patience();
    options.most_message_bytes = most_message_bytes_;
    options.select = select;
    Group group = first_ranks(size);
    group.id = static_cast<ProcessSetId>(size);
    auto fabric = make_mpi_fabric(session(), group, options);
    if (!fabric.ok()) return fabric.status().message();
    return part(**fabric);
  }

 private:
  const std::size_t most_message_bytes_;
};

TEST_CASE("mpi keeps the fabric contract", "[mpi]") {
  for (const std::size_t most : {std::size_t{1} << 30U, std::size_t{1000}}) {
    MpiMedium medium(most);
    for (const Test& test : fabric_contract()) {
      for (int size = 1; size <= medium.largest_group(); ++size) {
        INFO(test.name << ", " << size << " members, messages up to " << most);
        CHECK(test.run(medium, size) == "");
      }
    }
  }
}

TEST_CASE("mpi carries out every algorithm", "[mpi]") {
  MpiMedium medium(std::size_t{1} << 30U);
  for (const Test& test : algorithm_contract()) {
    INFO(test.name << ", " << medium.largest_group() << " members");
    CHECK(test.run(medium, medium.largest_group()) == "");
  }
}

// The last member comes after the others' deadline on purpose. Then it receives what they sent, so that MPI
// can still be finalised.
TEST_CASE("mpi: a missed deadline names the late rank and poisons the fabric", "[mpi]") {
  const int size = session().size();
  if (size < 2) return;
  MpiFabricOptions options;
  options.poisons_session = false;
  auto fabric = make_mpi_fabric(session(), first_ranks(size), options);
  auto gate = make_mpi_fabric(session(), first_ranks(size), {});
  REQUIRE((fabric.ok() && gate.ok()));
  std::vector<std::byte> data(64);
  const bool late = session().rank() == size - 1;
  const auto barrier = patient<BarrierCall>();
  if (late) {
    REQUIRE(run_call(**gate, barrier) == "");  // the others come here only after their deadline
    return;
  }
  BroadcastCall call = broadcast_over(data.data(), data.size(), size - 1);
  call.deadline = Deadline::after(std::chrono::milliseconds(100));
  const TimePoint begin = steady_now();
  const std::string error = run_call(**fabric, call);
  CHECK(error.find("made no progress until its deadline") != std::string::npos);
  if (session().rank() == 0)
    CHECK(error.find("waiting for rank " + std::to_string(size - 1)) != std::string::npos);
  testing::expect_within(std::chrono::seconds(5), steady_now() - begin);
  CHECK((*fabric)->poisoned());
  CHECK((*fabric)->start(call).status().message() == error);
  REQUIRE(run_call(**gate, barrier) == "");
}

}  // namespace
}  // namespace roundelay::contract
