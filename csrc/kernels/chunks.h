// Arithmetic on buckets that are sent in parts: chunks, their norms, and the residual, which keeps the parts
// that were not sent. Thread-safe; allocates nothing; memory may be unaligned. It takes floating types only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace roundelay::kernels {

// Elements that are treated together: chunk i has the elements from i * chunk on. The last one may be
// shorter.
struct Chunking {
  std::size_t count = 0;  // elements
  std::size_t chunk = 1;  // elements of a chunk

  [[nodiscard]] constexpr std::size_t chunks() const { return (count + chunk - 1) / chunk; }
  // Returns the number of elements of chunk `index`; 0 if there is no such chunk.
  [[nodiscard]] constexpr std::size_t size(std::size_t index) const {
    const std::size_t first = index * chunk;
    if (first >= count) return 0;
    return count - first < chunk ? count - first : chunk;
  }
};

// Returns the type of the residual of values of this type: fp64 for fp64, fp32 for fp32 and halves.
constexpr DType residual_type(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

// The next three functions move values into a residual and out of it. The residual has residual_type(dtype).
// The arrays do not overlap. A NaN becomes the type's one quiet NaN.
//
// Computes residual[i] += values[i], and sets the values to zero. A residual of zero takes the value's bits.
void keep(void* residual, void* values, std::size_t count, DType dtype);
// Computes values[i] += residual[i] with one rounding, and sets the residual to zero. Values to which it adds
// zero keep their bits.
void give_back(void* values, void* residual, std::size_t count, DType dtype);
// Computes sent[i] = residual[i], rounded once, and residual[i] -= sent[i]. A residual becomes zero where the
// result is not finite, so that an overflow is sent once.
void take_rounded(void* sent, void* residual, std::size_t count, DType dtype);

// Returns the L1 norm: the sum of |x|, added up in fp64 in an order that depends on `count` alone.
float norm(const void* values, std::size_t count, DType dtype);

// Momentum that a rank applies to its own gradients before they are sent. Factor 0: none.
struct LocalMomentum {
  double factor = 0;
  bool nesterov = false;
};

// A rank's residual and momentum. Both are arrays of residual_type(dtype).
struct ResidualState {
  std::byte* residual = nullptr;
  std::byte* momentum = nullptr;  // null: without momentum
  LocalMomentum how{};
};

// Returns the part of `kept` that belongs to one chunk.
ResidualState chunk_of(const ResidualState& kept, Chunking of, std::size_t index, DType dtype);

// The norm that accumulate() gives at least. So a chunk that has elements has a larger norm than zero.
inline constexpr float kLeastNorm = 0x1p-126F;
// The norm that accumulate() gives at most if all numbers are finite. So the sum over 65536 ranks is finite.
inline constexpr float kMostNorm = 0x1.fffffep+111F;

// Computes residual[i] += values[i], sets the values to zero, and returns the residual's norm, in one pass.
// With momentum m, which is updated first, the residual takes
//   m[i] = factor * m[i] + values[i]                and adds m[i], or
//   m[i] = factor * (m[i] + values[i]), Nesterov's, and adds m[i] + values[i].
// A number that is not finite counts in the norm, and becomes zero in the residual and in the momentum.
float accumulate(const ResidualState& kept, void* values, std::size_t count, DType dtype);

// Writes a NaN to the value if some norm is not finite.
void mark_overflow(void* value, DType dtype, const float* norms, std::size_t count);

// Writes the indices of the `keep` largest norms, ascending. If norms are equal, the first are taken. A NaN
// is larger than all numbers. Norms are not negative. `keep` is at most `count`, which is below 2^32.
void select_largest(std::uint32_t* indices, std::size_t keep, const float* norms, std::size_t count);

// Numbers that follow each other at equal distances.
struct Progression {
  std::uint32_t first = 0, step = 1;
  [[nodiscard]] constexpr std::uint32_t at(std::size_t j) const {
    return first + static_cast<std::uint32_t>(j) * step;
  }
};

}  // namespace roundelay::kernels
