// Members that are threads, each with a fake GPU, whose memory is the host's in disguise: so any transport
// takes it, and their device fabric runs over the hub.
#pragma once

#include <memory>
#include <vector>

#include "collective/device/device_fabric.h"
#include "collective/inproc/hub.h"
#include "collective/staged/staged_fabric.h"
#include "tests/cpp/contract/fabric_contract.h"
#include "tests/cpp/doubles/fake_gpu.h"
#include "tests/cpp/gpu/on_device.h"

namespace roundelay::gpu_test {

// What one member's device fabric is made of. It outlives the fabric.
struct DeviceMember {
  explicit DeviceMember(unsigned seed)
      : gpu(doubles::FakeGpu::Options{.seed = seed, .longest_delay = std::chrono::microseconds(20)}) {}

  // `cpu`: for the staged fabric. `medium`: for the device fabric.
  void open(std::unique_ptr<collective::Fabric> host, std::shared_ptr<collective::FabricState> medium,
            collective::Select select) {
    cpu = std::move(host);
    staged = collective::make_staged_fabric(*cpu, gpu, 0);
    cache = std::make_shared<pointers::PointerCache>(gpu);
    auto made = collective::make_device_fabric(
        {.medium = {.state = std::move(medium), .name = "mpi", .select = std::move(select)},
         .runtime = gpu,
         .kernels = gpu,
         .device = 0,
         .pointers = {.cache = cache, .hears_all = gpu.tell(cache)},
         .staged = *staged,
         .counters = counters});
    fabric = std::move(made).value();
  }

  doubles::FakeGpu gpu;
  std::shared_ptr<collective::FabricCounters> counters = std::make_shared<collective::FabricCounters>();
  std::shared_ptr<pointers::PointerCache> cache;
  std::unique_ptr<collective::Fabric> cpu, staged, fabric;
};

struct DeviceWorld {
  explicit DeviceWorld(int size, collective::Select select = collective::Select().on_device())
      : hub(std::make_shared<collective::InprocHub>(size)),
        host_hub(std::make_shared<collective::InprocHub>(size)) {
    for (int index = 0; index < size; ++index) {
      Group group;
      for (int rank = 0; rank < size; ++rank) group.ranks.push_back(10 + rank);
      group.index = index;
      auto state = std::make_shared<collective::FabricState>();
      state->group = group;
      state->transport = hub->transport(index);
      auto& member = members.emplace_back(std::make_unique<DeviceMember>(1 + static_cast<unsigned>(index)));
      member->open(collective::make_inproc_fabric(host_hub, group), std::move(state), select);
    }
  }
  // Returns the device fabrics for calls on host memory.
  [[nodiscard]] std::vector<std::unique_ptr<collective::Fabric>> for_host_memory() {
    std::vector<std::unique_ptr<collective::Fabric>> fabrics;
    for (auto& member : members) fabrics.push_back(on_device(std::move(member->fabric), member->gpu));
    return fabrics;
  }

  std::shared_ptr<collective::InprocHub> hub, host_hub;
  std::vector<std::unique_ptr<DeviceMember>> members;
};

}  // namespace roundelay::gpu_test
