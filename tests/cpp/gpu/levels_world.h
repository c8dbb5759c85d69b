// Members on several nodes, each a thread with a fake GPU and a fake NCCL. NCCL works inside the nodes;
// counters show how much is sent between them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu/gpu_fabric.h"
#include "tests/cpp/contract/counted_fabric.h"
#include "tests/cpp/contract/fabric_contract.h"
#include "tests/cpp/contract/inproc_levels.h"
#include "tests/cpp/doubles/fake_gpu.h"
#include "tests/cpp/doubles/fake_nccl.h"
#include "tests/cpp/gpu/on_device.h"

namespace roundelay::gpu_test {

using contract::counted_fabric;
using contract::Counter;

struct LevelsMember {
  std::unique_ptr<doubles::FakeGpu> gpu;
  std::unique_ptr<doubles::FakeNccl> nccl;
  std::unique_ptr<collective::Fabric> cpu;
};

struct LevelsWorld {
  // Chunks are so small that the contract's buffers have several.
  static constexpr collective::LevelsCut kCut{.shard_bytes = 4096, .most_across = 2};

  LevelsWorld(int nodes, int of_each, collective::LevelsCut cut = kCut,
              gpu::GpuFabricWish wish = gpu::GpuFabricWish::kTwoLevel, bool with_nccl = true)
      : LevelsWorld(contract::tree_of_nodes(nodes, of_each), cut, wish, with_nccl) {}
  explicit LevelsWorld(const collective::levels::Tree& tree, collective::LevelsCut cut = kCut,
                       gpu::GpuFabricWish wish = gpu::GpuFabricWish::kTwoLevel, bool with_nccl = true)
      : levels(tree), sent_between(tree.front().size()) {
    for (int index = 0; index < levels.size(); ++index) {
      const auto on_node = [index](const auto& part) { return std::ranges::count(part, index) > 0; };
      const auto node = std::ranges::find_if(tree.front(), on_node) - tree.front().begin();
      collective::LevelsParts own = levels.of(index);
      for (std::size_t stage = 1; stage < own.main.stages.size(); ++stage) {
        own.main.stages[stage].of_groups.front() =
            counted_fabric(*levels.hub(stage, index), levels.group(stage, index),
                           sent_between[static_cast<std::size_t>(node)]);
      }
      own.flat = counted_fabric(*levels.flat, levels.whole(index), sent_flat);
      LevelsMember& member = members.emplace_back();
      member.gpu = std::make_unique<doubles::FakeGpu>(
          doubles::FakeGpu::Options{.seed = static_cast<unsigned>(31 + index),
                                    .longest_delay = std::chrono::microseconds(20),
                                    .identity = "fake GPU of " + std::to_string(index) + ", "});
      member.nccl = std::make_unique<doubles::FakeNccl>(*member.gpu, static_cast<unsigned>(17 + index));
      member.cpu = collective::make_levels_fabric(std::move(own));
      const gpu::GpuParts parts{member.gpu.get(), member.gpu.get(), with_nccl ? member.nccl.get() : nullptr,
                                with_nccl ? "" : "none"};
      auto fabric = std::make_unique<gpu::GpuFabric>(
          parts, *member.cpu,
          gpu::GpuFabricOptions{.wish = wish, .node = "node " + std::to_string(node), .cut = cut});
      fabric->open(0);
      fabrics.push_back(std::move(fabric));
    }
  }
  // Makes the first call. Returns the error, "" if there is none.
  [[nodiscard]] std::string meet() {
    return contract::run_on_threads(fabrics, [this](collective::Fabric& fabric) -> std::string {
      doubles::FakeGpu& own = gpu(fabric.group().index);
      auto call = contract::patient<collective::BarrierCall>();
      call.stream = own.make_stream(0).value();
      std::string error = contract::run_call(fabric, call);
      own.free_stream(0, call.stream);
      return error;
    });
  }
  // Returns the fabrics for calls on host memory.
  [[nodiscard]] std::vector<std::unique_ptr<collective::Fabric>> for_host_memory() {
    std::vector<std::unique_ptr<collective::Fabric>> on_host;
    for (std::size_t i = 0; i < fabrics.size(); ++i) {
      on_host.push_back(on_device(std::move(fabrics[i]), *members[i].gpu));
    }
    return on_host;
  }
  [[nodiscard]] doubles::FakeGpu& gpu(int index) const {
    return *members[static_cast<std::size_t>(index)].gpu;
  }

  const contract::InprocLevels levels;
  std::vector<Counter> sent_between;  // by sending node
  Counter sent_flat{0};
  std::vector<LevelsMember> members;
  std::vector<std::unique_ptr<collective::Fabric>> fabrics;
};

}  // namespace roundelay::gpu_test
