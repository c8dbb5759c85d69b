// Starts kernels whose one argument is a struct.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "base/gpu.h"
#include "base/status.h"
#include "kernels/cuda/memory.cuh"
#include "platform/cuda/device.h"

namespace roundelay::kernels::cuda {

__device__ __forceinline__ Thread this_thread() {
  return {static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)};
}

// Enqueues a kernel. No blocks are no launch. Errors: as in base/gpu_runtime.h, and kInvalidArgument (too
// many blocks).
template <typename Work>
Status launch(int device, void (*kernel)(Work), std::uint64_t blocks, int threads, Work work,
              GpuStream stream) {
  if (blocks == 0) return {};
  if (blocks > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max())) {
    return Status::invalid(std::to_string(blocks) + " blocks are more than one launch can have");
  }
  const platform::cuda::OnDevice on(device);
  ROUNDELAY_RETURN_IF_ERROR(on.status());
  void* arguments[] = {&work};
  return platform::cuda::check(
      cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(static_cast<unsigned>(blocks)),
                       dim3(static_cast<unsigned>(threads)), arguments, 0, platform::cuda::native(stream)),
      "cudaLaunchKernel");
}

}  // namespace roundelay::kernels::cuda
