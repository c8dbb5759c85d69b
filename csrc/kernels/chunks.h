// Arithmetic on buckets that are sent in parts: chunks, their norms, and the residual of what was not sent.
// Thread-safe; allocates nothing; memory may be unaligned. For floating types.
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
void take(void* sent, void* residual, std::size_t count, DType dtype);

// Returns the L1 norm: the sum of |x|, added up in fp64 in an order that depends on `count` alone.
float norm(const void* values, std::size_t count, DType dtype);

// Writes the indices of the `keep` largest norms, ascending. Of equal norms the first are taken. A NaN is
// larger than all numbers. Norms are not negative. `keep` is at most `count`, which is below 2^32.
void select_largest(std::uint32_t* indices, std::size_t keep, const float* norms, std::size_t count);

// Returns the index of chunk `j` of a turn. Turns are numbered from 0, for ever. Turn t takes every
// `parts`-th chunk, from chunk t % parts on, so that `parts` turns take all chunks once.
constexpr std::uint32_t turn_index(std::uint64_t turn, std::uint64_t parts, std::uint64_t j) {
  return static_cast<std::uint32_t>(turn % parts + j * parts);
}

}  // namespace roundelay::kernels
