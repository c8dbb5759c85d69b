// Arithmetic on spans of elements. Pure, thread-safe, no allocation; memory may be unaligned.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "base/status.h"

namespace roundelay::kernels {

// accumulator[i] = accumulator[i] op incoming[i]. Halves are computed in fp32 and rounded to nearest even
// once. Sum, Min, Max, Product only (kAverage is a Sum with a divisor in Scale, kAdasum is no elementwise
// operation). Min and Max propagate NaN as torch does. Bool: Sum and Max are "or", Product and Min are "and".
// Integers wrap around.
void reduce(void* accumulator, const void* incoming, std::size_t count, DType dtype, ReduceOp op);

// destination[i] = scale(source[i]); destination may equal source. fp32 and fp64 are computed in fp64 and
// fp64, halves in fp32, integers in fp64 truncating toward zero and saturating at the type's limits
// (64-bit: exact where factor == 1). Each element is rounded once. Identity scale is a plain copy.
void scale_copy(void* destination, const void* source, std::size_t count, DType dtype, Scale scale);

// destination[i] = (to) source[i], round to nearest even; float to integer truncates toward zero.
// The ranges must not overlap unless both types have one size and both addresses are equal.
void cast(void* destination, DType to, const void* source, DType from, std::size_t count);

}  // namespace roundelay::kernels
