// The fabric contract over MPI on a fake device, whose memory is the host's in disguise: this MPI takes it,
// though it knows nothing of GPUs.
#include "collective/mpi/mpi_fabric.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/fabric_contract.h"
#include "tests/cpp/gpu/device_world.h"
#include "tests/cpp/mpi/session.h"

namespace roundelay::contract {
namespace {

class MpiDeviceMedium final : public Medium {
 public:
  [[nodiscard]] int largest_group() const override { return session().size(); }
  std::string run(int size, Select select, const Part& part) override {
    if (session().rank() >= size) return {};
    collective::MpiFabricOptions options;
    options.deadline = patience();
    Group group = first_ranks(size);
    group.id = static_cast<ProcessSetId>(size);
    auto host = make_mpi_fabric(session(), group, options);
    if (!host.ok()) return host.status().message();
    auto state = make_mpi_state(session(), group, options);
    if (!state.ok()) return state.status().message();
    gpu_test::DeviceMember member(1 + static_cast<unsigned>(session().rank()));
    member.open(std::move(host).value(), std::move(state).value(), std::move(select));
    const auto fabric = gpu_test::on_device(std::move(member.fabric), member.gpu);
    return part(*fabric);
  }
};

TEST_CASE("mpi keeps the fabric contract on device memory", "[mpi][gpu]") {
  MpiDeviceMedium medium;
  for (const Test& test : fabric_contract()) {
    for (int size = 1; size <= medium.largest_group(); ++size) {
      INFO(test.name << ", " << size << " members");
      CHECK(test.run(medium, size) == "");
    }
  }
}

TEST_CASE("mpi carries out every algorithm on device memory", "[mpi][gpu]") {
  MpiDeviceMedium medium;
  for (const Test& test : algorithm_contract()) {
    INFO(test.name << ", " << medium.largest_group() << " members");
    CHECK(test.run(medium, medium.largest_group()) == "");
  }
}

}  // namespace
}  // namespace roundelay::contract
