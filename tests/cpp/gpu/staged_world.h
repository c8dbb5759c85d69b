// Members that are threads, each with a fake GPU; their calls are staged over fabric inproc.
#pragma once

#include <memory>
#include <vector>

#include "collective/inproc/hub.h"
#include "collective/staged/staged_fabric.h"
#include "tests/cpp/contract/fabric_contract.h"
#include "tests/cpp/doubles/fake_gpu.h"
#include "tests/cpp/gpu/on_device.h"

namespace roundelay::gpu_test {

// Bytes per staged piece: 1024 elements of 4 bytes, around which the contract tests lengths.
inline constexpr std::size_t kPiece = 4096;

struct StagedMember {
  std::unique_ptr<doubles::FakeGpu> gpu;
  std::unique_ptr<collective::Fabric> cpu;    // `staged` uses it
  std::unique_ptr<collective::Fabric> plain;  // over another hub, for comparison
  std::unique_ptr<collective::Fabric> staged;
};

struct StagedWorld {
  explicit StagedWorld(int size, unsigned seed = 1, std::size_t piece = kPiece)
      : hub(std::make_shared<collective::InprocHub>(size)) {
    const auto other = std::make_shared<collective::InprocHub>(size);
    for (int index = 0; index < size; ++index) {
      Group group;
      for (int rank = 0; rank < size; ++rank) group.ranks.push_back(10 + rank);
      group.index = index;
      StagedMember& member = members.emplace_back();
      const unsigned own_seed = seed * 31 + static_cast<unsigned>(index);
      member.gpu = std::make_unique<doubles::FakeGpu>(
          doubles::FakeGpu::Options{.seed = own_seed, .longest_delay = std::chrono::microseconds(20)});
      member.cpu = collective::make_inproc_fabric(hub, group);
      member.plain = collective::make_inproc_fabric(other, group);
      member.staged = collective::make_staged_fabric(*member.cpu, *member.gpu, 0, piece);
    }
  }
  // Returns the staged fabrics for calls on host memory.
  [[nodiscard]] std::vector<std::unique_ptr<collective::Fabric>> for_host_memory() {
    std::vector<std::unique_ptr<collective::Fabric>> fabrics;
    for (StagedMember& member : members) fabrics.push_back(on_device(std::move(member.staged), *member.gpu));
    return fabrics;
  }

  std::shared_ptr<collective::InprocHub> hub;
  std::vector<StagedMember> members;
};

}  // namespace roundelay::gpu_test
