// The levels of a group's fabric between GPUs, before the members choose it.
#pragma once

#include <span>
#include <vector>

#include "collective/fabric.h"
#include "gpu/choice.h"

namespace roundelay::gpu {

// Returns the levels that GpuFabric takes over from the CPU's fabric: with kTwoLevel for all calls, with
// others but kMpi for techniques; empty: none.
[[nodiscard]] inline std::span<collective::Fabric* const> level_fabrics_of(collective::Fabric& cpu,
                                                                           GpuFabricWish wish) {
  const bool for_all = wish == GpuFabricWish::kTwoLevel;
  if (wish == GpuFabricWish::kMpi || cpu.level_fabrics().size() < 2) return {};
  return for_all || collective::node_fabric(cpu) != nullptr ? cpu.level_fabrics()
                                                            : std::span<collective::Fabric* const>{};
}

// Returns the collective::level_sizes() of the fabric that the members choose.
[[nodiscard]] inline std::vector<int> gpu_level_sizes(collective::Fabric& cpu, GpuFabricWish wish) {
  if (cpu.level_fabrics().size() < 2 || !level_fabrics_of(cpu, wish).empty())
    return collective::level_sizes(cpu);
  return {1, cpu.group().size()};
}

}  // namespace roundelay::gpu
