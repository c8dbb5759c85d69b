// Arithmetic on device memory, in a stream's turn: the counterparts of kernels.h.
//
// Thread-safe; nothing waits for the device. What is referred to (the lists, not the memory) may go when the
// call returns. Errors: as base/gpu_runtime.h. Same elements, same bits, whatever the alignment.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"
#include "base/gpu.h"
#include "base/status.h"

namespace roundelay::kernels {

// `count` elements, from one place to another (or in place, of one size): to = scale(from).
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
  // Packs, unpacks, casts and scales: all items in as few launches as possible, hundreds in one. Bit-equal to
  // kernels::scale_copy (one type), to kernels::cast (identity scale); both: scaled in what the former
  // computes in, then rounded to `to_type`. Items must not overlap but with themselves.
  [[nodiscard]] virtual Status copy_batch(int device, std::span<const GpuCopy> items, Scale scale,
                                          GpuStream stream) = 0;
  // Bit-equal to kernels::reduce_parts, but for fp64 sums of more than two parts and fp64 averages, which are
  // within 1 ulp: see docs/gpu.md.
  [[nodiscard]] virtual Status reduce_parts(int device, std::byte* to,
                                            std::span<const std::byte* const> parts, std::size_t count,
                                            DType dtype, ReduceOp op, Scale prescale, Scale scale,
                                            GpuStream stream) = 0;
  // result[i] = {sum of |x|, sum of x * x} of chunk i, as two fp64, of `chunk` elements (the last one: what
  // is left); floating types.
  [[nodiscard]] virtual Status norms(int device, double* result, const std::byte* from, std::size_t count,
                                     std::size_t chunk, DType dtype, GpuStream stream) = 0;
};

}  // namespace roundelay::kernels
