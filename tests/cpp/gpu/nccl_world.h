// Members that are threads, each with a fake GPU and a fake NCCL.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collective/nccl/nccl_fabric.h"
#include "tests/cpp/doubles/fake_nccl.h"
#include "tests/cpp/gpu/staged_world.h"

namespace roundelay::gpu_test {

struct NcclWorld {
  explicit NcclWorld(int size, unsigned seed = 1) : staged(size, seed) {
    for (StagedMember& member : staged.members) {
      nccl.push_back(std::make_unique<doubles::FakeNccl>(*member.gpu, seed * 17));
    }
    fabrics = new_fabrics();
  }
  // Makes fabrics over a new communicator.
  std::vector<std::unique_ptr<collective::Fabric>> new_fabrics() {
    const int size = static_cast<int>(nccl.size());
    const platform::NcclId id = *nccl.front()->make_id();
    std::vector<std::unique_ptr<platform::NcclCommunicator>> communicators;
    for (int index = 0; index < size; ++index) {
      communicators.push_back(nccl[static_cast<std::size_t>(index)]->join(id, size, index, 0).value());
    }
    std::vector<std::unique_ptr<collective::Fabric>> made;
    for (std::size_t i = 0; i < nccl.size(); ++i) {
      StagedMember& member = staged.members[i];
      made.push_back(collective::make_nccl_fabric(
          {member.cpu->group(), std::move(communicators[i]), *member.gpu, *member.gpu, 0, *member.staged}));
    }
    return made;
  }
  // Returns the fabrics for calls on host memory.
  std::vector<std::unique_ptr<collective::Fabric>> for_host_memory() {
    std::vector<std::unique_ptr<collective::Fabric>> on_host;
    for (std::size_t i = 0; i < fabrics.size(); ++i) {
      on_host.push_back(on_device(std::move(fabrics[i]), *staged.members[i].gpu));
    }
    return on_host;
  }
  doubles::FakeGpu& gpu(int index) { return *staged.members[static_cast<std::size_t>(index)].gpu; }

  StagedWorld staged;
  std::vector<std::unique_ptr<doubles::FakeNccl>> nccl;
  std::vector<std::unique_ptr<collective::Fabric>> fabrics;
};

}  // namespace roundelay::gpu_test
