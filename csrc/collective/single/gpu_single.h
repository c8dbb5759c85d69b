// Calls on a GPU that need no peer.
#pragma once

#include "base/gpu_runtime.h"
#include "collective/fabric.h"
#include "kernels/gpu.h"

namespace roundelay::collective {

// Enqueues the copying and scaling of a call of a group of one to the call's stream. The result has the bits
// of finish_single(). Errors: as base/gpu_runtime.h.
Status enqueue_single(const Call& call, GpuRuntime& runtime, kernels::GpuKernels& kernels, int device);

// The RegionMaker of fabrics between GPUs. Always returns kUnavailable: no peer reaches this member's memory.
Result<RegionPtr> no_gpu_region(std::uint64_t key, std::size_t bytes);

}  // namespace roundelay::collective
