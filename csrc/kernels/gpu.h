// Arithmetic on device memory: the counterparts of kernels.h, enqueued to a stream.
//
// Thread-safe. No call waits for the device. The caller may release the lists when the call returns, but not
// the memory that they name. Errors: as in base/gpu_runtime.h. Alignment does not change the result's bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/dtype.h"
#include "base/gpu.h"
#include "base/status.h"
#include "kernels/chunks.h"
#include "kernels/low_rank.h"
#include "kernels/pairs.h"
#include "kernels/top_k.h"

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
  // Returns the compute capabilities that the kernels are compiled for: "8.0, 9.0 and later".
  [[nodiscard]] virtual std::string compiled_for() const = 0;
  // Returns OK if the kernels run on the device; otherwise kUnavailable, with what they are compiled for and
  // the cure. Starts nothing on the device.
  [[nodiscard]] virtual Status fits(int device) const = 0;
  // Packs, unpacks, casts and scales all items in as few launches as possible (one launch takes hundreds).
  // The result equals kernels::scale_copy() bit for bit if both types are the same, and kernels::cast() if
  // `scale` is the identity. Otherwise it scales as scale_copy() does and then rounds to `to_type`. Two items
  // must not overlap.
  [[nodiscard]] virtual Status copy_batch(int device, std::span<const GpuCopy> items, Scale scale,
                                          GpuStream stream) = 0;
  // Gives the same bits as kernels::reduce_parts(), except fp64 sums of more than two parts and fp64
  // averages, which are within 1 ulp (see docs/gpu.md). Errors besides: kInvalidArgument (too many parts).
  [[nodiscard]] virtual Status reduce_parts(int device, std::byte* to,
                                            std::span<const std::byte* const> parts, std::size_t count,
                                            DType dtype, ReduceOp op, Scale prescale, Scale scale,
                                            GpuStream stream) = 0;

  // Residuals and chunks (chunks.h), with the bits of the CPU's functions. All memory is aligned to its
  // elements. Indices and norms are on the device, too. An index beyond the last chunk stands for a chunk of
  // 0 elements. Errors besides: kInvalidArgument (a type that is not floating, too many chunks).
  [[nodiscard]] virtual Status keep(int device, std::byte* residual, std::byte* values, std::size_t count,
                                    DType dtype, GpuStream stream) = 0;
  [[nodiscard]] virtual Status give_back(int device, std::byte* values, std::byte* residual,
                                         std::size_t count, DType dtype, GpuStream stream) = 0;
  // Calls accumulate() of chunks.h for each chunk, and sets norms[i] to its result for chunk i.
  [[nodiscard]] virtual Status accumulate(int device, float* norms, const ResidualState& kept,
                                          std::byte* values, Chunking of, DType dtype, GpuStream stream) = 0;
  [[nodiscard]] virtual Status mark_overflow(int device, std::byte* value, DType dtype, const float* norms,
                                             std::size_t count, GpuStream stream) = 0;
  // Computes the norm of each chunk of `from`.
  [[nodiscard]] virtual Status norms(int device, float* norms, const std::byte* from, Chunking of,
                                     DType dtype, GpuStream stream) = 0;
  // Does what select_largest() does.
  [[nodiscard]] virtual Status select(int device, std::uint32_t* indices, std::size_t keep,
                                      const float* norms, std::size_t count, GpuStream stream) = 0;
  // Writes the first `count` of these numbers.
  [[nodiscard]] virtual Status number(int device, std::uint32_t* indices, std::size_t count,
                                      Progression numbers, GpuStream stream) = 0;
  // Moves the chunks at these indices out of the residual, as take_rounded() does, and puts them side by side
  // into `to`. Zeros fill the places of elements that a chunk does not have.
  [[nodiscard]] virtual Status gather(int device, std::byte* to, std::byte* residual, Chunking of,
                                      std::span<const std::uint32_t> indices, DType dtype,
                                      GpuStream stream) = 0;
  // Copies chunks that lie side by side in `from` to their places in `to`. No index comes twice. The types
  // are the same, or those of a cast from halves to fp32.
  [[nodiscard]] virtual Status scatter(int device, std::byte* to, DType to_type, const std::byte* from,
                                       DType from_type, Chunking of, std::span<const std::uint32_t> indices,
                                       GpuStream stream) = 0;
  // Sets these chunks of `at` to zero.
  [[nodiscard]] virtual Status clear_chunks(int device, std::byte* at, Chunking of,
                                            std::span<const std::uint32_t> indices, DType dtype,
                                            GpuStream stream) = 0;

  // Selects what kernels::top_k() selects (top_k.h). MSTopK reads the values ceil(samplings / 4) + 3 times,
  // once more if fewer than k reach the mean; radix reads them twice, and more often only where more than an
  // eighth of neighbouring values is selected. `scratch` has top_k_scratch(values.size()) bytes, aligned
  // to 8. Errors besides: kInvalidArgument (`chosen` has more places than there are values).
  [[nodiscard]] virtual Status top_k(int device, std::span<const float> values, const TopKRule& rule,
                                     std::span<float> chosen, std::span<std::int64_t> indices,
                                     std::byte* scratch, GpuStream stream) = 0;
  [[nodiscard]] virtual std::size_t top_k_scratch(std::size_t count) const = 0;

  // Messages of pairs (pairs.h), with the bits of the CPU's functions. The indices are on the device, too.
  [[nodiscard]] virtual Status take_pairs(int device, const Pairs& pairs, const ResidualState& kept,
                                          std::span<const std::int64_t> indices, GpuStream stream) = 0;
  // A pair whose index is beyond the array is left out, and `pairs.overflow` becomes a NaN.
  [[nodiscard]] virtual Status add_pairs(int device, std::byte* sums, const Pairs& pairs, Scale prescale,
                                         GpuStream stream) = 0;

  // Low-rank approximations (low_rank.h), with the bits of the CPU's functions but for those of NaNs in
  // factors. All memory is aligned to its elements. `scratch` has project_back_scratch() bytes for the
  // block's rows, columns and vectors, aligned to 8. Errors besides: kInvalidArgument (a type that is not
  // floating, 2^31 columns).
  [[nodiscard]] virtual Status project(int device, const LowRankBlock& block, DType dtype,
                                       GpuStream stream) = 0;
  [[nodiscard]] virtual Status project_back(int device, const LowRankBlock& block, DType dtype,
                                            std::byte* scratch, GpuStream stream) = 0;
  [[nodiscard]] virtual std::size_t project_back_scratch(std::size_t rows, std::size_t columns,
                                                         std::size_t count, DType dtype) const = 0;
  [[nodiscard]] virtual Status expand(int device, const LowRankBlock& block, double share, DType dtype,
                                      GpuStream stream) = 0;
  [[nodiscard]] virtual Status orthonormalise(int device, const Vectors& vectors, DType dtype,
                                              GpuStream stream) = 0;
  [[nodiscard]] virtual Status renew(int device, const Vectors& to, const Vectors& from, std::uint64_t seed,
                                     DType dtype, GpuStream stream) = 0;
};

}  // namespace roundelay::kernels
