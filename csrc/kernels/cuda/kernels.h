// Implements kernels/gpu.h with CUDA. A process has one.
#pragma once

#include "kernels/gpu.h"

namespace roundelay::kernels::cuda {

class CudaKernels final : public GpuKernels {
 public:
  Status copy_batch(int device, std::span<const GpuCopy> items, Scale scale, GpuStream stream) override;
  // Takes at most 256 parts.
  Status reduce_parts(int device, std::byte* to, std::span<const std::byte* const> parts, std::size_t count,
                      DType dtype, ReduceOp op, Scale prescale, Scale scale, GpuStream stream) override;
  Status norms(int device, double* result, const std::byte* from, std::size_t count, std::size_t chunk,
               DType dtype, GpuStream stream) override;
};

}  // namespace roundelay::kernels::cuda
