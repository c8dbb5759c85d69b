// Arithmetic on device memory: the counterparts of kernels.h, enqueued to a stream.
//
// Thread-safe. No call waits for the device. The caller may release the lists when the call returns, but not
// the memory that they name. Errors: as in base/gpu_runtime.h. Alignment does not change the result's bits.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"
#include "base/gpu.h"
#include "base/status.h"

namespace roundelay::kernels {

// Copies `count` elements: to = scale(from). Both may be the same memory if the types have the same size.
struct GpuCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t count = 0;
  DType to_type = DType::kFloat32;
  DType from_type = DType::kFloat32;
};

class GpuKernels {
 public:
  virtual ~GpuKernels() = default;
  // Packs, unpacks, casts and scales all items in as few launches as possible (one launch takes hundreds).
  // The result equals kernels::scale_copy() bit for bit if both types are the same, and kernels::cast() if
  // `scale` is the identity. Otherwise it scales as scale_copy() does and then rounds to `to_type`. Two items
  // must not overlap.
  [[nodiscard]] virtual Status copy_batch(int device, std::span<const GpuCopy> items, Scale scale,
                                          GpuStream stream) = 0;
  // Gives the same bits as kernels::reduce_parts(), except fp64 sums of more than two parts and fp64
  // averages, which are within 1 ulp (see docs/gpu.md).
  [[nodiscard]] virtual Status reduce_parts(int device, std::byte* to,
                                            std::span<const std::byte* const> parts, std::size_t count,
                                            DType dtype, ReduceOp op, Scale prescale, Scale scale,
                                            GpuStream stream) = 0;
  // Computes norms of each chunk of `chunk` elements (the last one may be shorter): result[i] holds the sum
  // of |x| and the sum of x * x of chunk i, two fp64 numbers. For floating types.
  [[nodiscard]] virtual Status norms(int device, double* result, const std::byte* from, std::size_t count,
                                     std::size_t chunk, DType dtype, GpuStream stream) = 0;
};

}  // namespace roundelay::kernels
