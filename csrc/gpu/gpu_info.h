// Makes the message in which a member tells the others about its GPU, before they choose a fabric.
#pragma once

#include <array>

#include "base/status.h"
#include "gpu/choice.h"
#include "gpu/module.h"

namespace roundelay::gpu {

struct GpuFabricOptions;

struct GpuRole {
  bool has_levels = false;  // the member's CPU fabric has the levels that are wished for
  // It is the first member of the communicators of these groups (GpuFabric::joining()), and makes the ids.
  std::array<bool, 2> names{};
};

// Returns this member's message. Errors: those of base/gpu_runtime.h and platform/nccl/api.h.
Result<GpuInfo> own_gpu_info(const GpuParts& parts, int device, const GpuFabricOptions& options,
                             GpuRole role);

}  // namespace roundelay::gpu
