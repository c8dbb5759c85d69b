// What a call on a GPU is where nobody else takes part: copying and scaling, in the stream's turn.
#pragma once

#include "base/gpu_runtime.h"
#include "collective/fabric.h"
#include "kernels/gpu.h"

namespace roundelay::collective {

// Bit-equal to finish_alone(). Errors: as base/gpu_runtime.h.
Status enqueue_alone(const Call& call, GpuRuntime& runtime, kernels::GpuKernels& kernels, int device);

}  // namespace roundelay::collective
