// What needs no peer on a GPU.
#pragma once

#include "base/gpu_runtime.h"
#include "collective/fabric.h"
#include "kernels/gpu.h"

namespace roundelay::collective {

// What a call is where nobody else takes part: copying and scaling, in the stream's turn. Bit-equal to
// finish_single(). Errors: as base/gpu_runtime.h.
Status enqueue_single(const Call& call, GpuRuntime& runtime, kernels::GpuKernels& kernels, int device);

// The RegionMaker of fabrics between GPUs.
Result<RegionPtr> no_gpu_region(std::uint64_t key, std::size_t bytes);

}  // namespace roundelay::collective
