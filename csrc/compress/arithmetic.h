// The arithmetic of techniques, on the CPU or on a GPU: one interface for both.
//
// On a GPU the calls enqueue work to the bucket's stream. Norms and indices stay on the device: the host
// never waits to choose. All pointers of a call, spans too, are memory of the bucket's kind (host or device),
// aligned to its elements. The bits are the same on the CPU, on a GPU and on all ranks.
//
// A residual has the type kernels::residual_type(dtype): fp32, or fp64 for fp64. kernels/chunks.h defines
// chunks and the functions on residuals. `count` counts elements; `dtype` is the type of all memory but
// residuals, norms and indices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/status.h"
#include "kernels/chunks.h"
#include "kernels/gpu.h"
#include "kernels/low_rank.h"
#include "kernels/pairs.h"
#include "kernels/top_k.h"

namespace roundelay::compress {

using kernels::Chunking;

// One thread at a time. Errors: kInvalidArgument (the type is not floating; only scale() takes all types),
// and on a GPU those of base/gpu_runtime.h.
class Arithmetic {
 public:
  virtual ~Arithmetic() = default;
  Arithmetic() = default;
  Arithmetic(const Arithmetic&) = delete;
  Arithmetic& operator=(const Arithmetic&) = delete;

  // Sets `bytes` bytes to zero.
  [[nodiscard]] virtual Status clear(std::byte* at, std::size_t bytes) = 0;
  // values = scale(values), rounded once.
  [[nodiscard]] virtual Status scale(std::byte* values, std::size_t count, DType dtype, Scale scale) = 0;
  // residual += values, and values = 0.
  [[nodiscard]] virtual Status keep(std::byte* residual, std::byte* values, std::size_t count,
                                    DType dtype) = 0;
  // values += residual, rounded once, and residual = 0.
  [[nodiscard]] virtual Status give_back(std::byte* values, std::byte* residual, std::size_t count,
                                         DType dtype) = 0;
  // Calls kernels::accumulate() for each chunk, and sets norms[i] to its result for chunk i.
  [[nodiscard]] virtual Status accumulate(std::span<float> norms, const kernels::ResidualState& kept,
                                          std::byte* values, Chunking of, DType dtype) = 0;
  // value = a NaN, if a norm is not finite.
  [[nodiscard]] virtual Status mark_overflow(std::byte* value, DType dtype, std::span<const float> norms) = 0;
  // For each item: to = from, converted with one rounding. Items do not overlap.
  [[nodiscard]] virtual Status copy(std::span<const kernels::GpuCopy> items) = 0;
  // norms[i] = the sum of |x| of chunk i, in fp32.
  [[nodiscard]] virtual Status norms(float* norms, const std::byte* from, Chunking of, DType dtype) = 0;
  // indices = those of the largest norms, as many as the span holds, ascending; of equal norms the first are
  // taken. There are at least as many norms as indices.
  [[nodiscard]] virtual Status select(std::span<std::uint32_t> indices, std::span<const float> norms) = 0;
  // indices[j] = number j of `numbers`. Some may be beyond the last chunk.
  [[nodiscard]] virtual Status number(std::span<std::uint32_t> indices, kernels::Progression numbers) = 0;
  // to = the residual's chunks at these indices, side by side, each element rounded to `dtype`; what the
  // rounding loses stays in the residual. Zeros fill the places of elements that a chunk does not have. `of`
  // divides the residual.
  [[nodiscard]] virtual Status gather(std::byte* to, std::byte* residual, Chunking of,
                                      std::span<const std::uint32_t> indices, DType dtype) = 0;
  // Copies the chunks at these indices, side by side in `from`, to their places in `to`, which `of` divides.
  // No index comes twice. The types are the same, or halves become fp32.
  [[nodiscard]] virtual Status scatter(std::byte* to, DType to_type, const std::byte* from, DType from_type,
                                       Chunking of, std::span<const std::uint32_t> indices) = 0;
  // Sets the chunks at these indices to zero.
  [[nodiscard]] virtual Status clear_chunks(std::byte* at, Chunking of,
                                            std::span<const std::uint32_t> indices, DType dtype) = 0;

  // Calls kernels::top_k(). `scratch` has top_k_scratch(values.size()) bytes, aligned to 8.
  [[nodiscard]] virtual Status top_k(std::span<const float> values, const kernels::TopKRule& rule,
                                     std::span<float> chosen, std::span<std::int64_t> indices,
                                     std::byte* scratch) = 0;
  [[nodiscard]] virtual std::size_t top_k_scratch(std::size_t count) const = 0;
  // Calls kernels::take_pairs().
  [[nodiscard]] virtual Status take_pairs(const kernels::Pairs& pairs, const kernels::ResidualState& kept,
                                          std::span<const std::int64_t> indices) = 0;
  // Calls kernels::add_pairs(). Errors besides: kInternal (the bytes are no indices of the array); on a GPU
  // `pairs.overflow` becomes a NaN instead.
  [[nodiscard]] virtual Status add_pairs(std::byte* sums, const kernels::Pairs& pairs, Scale prescale) = 0;

  // These do what the functions of kernels/low_rank.h do. `scratch` has project_back_scratch() bytes for the
  // block's rows, columns and vectors, or for more of them, aligned to 8.
  [[nodiscard]] virtual Status project(const kernels::LowRankBlock& block, DType dtype) = 0;
  [[nodiscard]] virtual Status project_back(const kernels::LowRankBlock& block, DType dtype,
                                            std::byte* scratch) = 0;
  [[nodiscard]] virtual std::size_t project_back_scratch(std::size_t rows, std::size_t columns,
                                                         std::size_t count, DType dtype) const = 0;
  [[nodiscard]] virtual Status expand(const kernels::LowRankBlock& block, double share, DType dtype) = 0;
  [[nodiscard]] virtual Status orthonormalise(const kernels::Vectors& vectors, DType dtype) = 0;
  [[nodiscard]] virtual Status renew(const kernels::Vectors& to, const kernels::Vectors& from,
                                     std::uint64_t seed, DType dtype) = 0;
};

}  // namespace roundelay::compress
