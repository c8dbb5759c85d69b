// Arithmetic on spans of elements. Pure, thread-safe, no allocation; memory may be unaligned.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"
#include "base/status.h"

namespace roundelay::kernels {

// accumulator[i] = accumulator[i] op incoming[i]. Halves are computed in fp32 and rounded to nearest even
// once. Sum, Min, Max, Product only (kAverage is a Sum with a divisor in Scale, kAdasum is no elementwise
// operation). Min and Max propagate NaN as torch does. Bool: Sum and Max are "or", Product and Min are "and".
// Integers wrap around.
void reduce(void* accumulator, const void* incoming, std::size_t count, DType dtype, ReduceOp op);

// destination[i] = scale(op over p of prescale(parts[p][i])), from the first part to the last. Factors are
// scale_copy()'s, of the parts and of the rounded result. Sums are rounded once, an average after it was
// divided: fp32 in fp64, fp64 with its rounding errors carried along, halves in fp32, integers in 64 bits
// (which wrap around; an average saturates). Other reductions go step by step as reduce() does. At least one
// part; `destination` may be one of them. The same elements give the same bits wherever they lie. Sum, Min,
// Max, Product only.
void reduce_parts(void* destination, std::span<const void* const> parts, std::size_t count, DType dtype,
                  ReduceOp op, Scale prescale, Scale scale);

// For Adasum, fp32 and fp64 only. a.b, a.a and b.b in fp64:
struct Dots {
  double ab = 0, aa = 0, bb = 0;
};
Dots dots(const void* a, const void* b, std::size_t count, DType dtype);
// a[i] = a[i] * factor_a + b[i] * factor_b, computed in fp64, one rounding.
void combine(void* a, double factor_a, const void* b, double factor_b, std::size_t count, DType dtype);

// destination[i] = scale(source[i]); destination may equal source. fp32 and fp64 are computed in their own
// type, halves in fp32, integers in fp64 truncating toward zero and saturating at the type's limits (64-bit:
// exact where factor == 1). Each element is rounded once. Identity scale is a plain copy.
void scale_copy(void* destination, const void* source, std::size_t count, DType dtype, Scale scale);

// destination[i] = (to) source[i], round to nearest even; float to integer truncates toward zero.
// The ranges must not overlap unless both types have one size and both addresses are equal.
void cast(void* destination, DType to, const void* source, DType from, std::size_t count);

}  // namespace roundelay::kernels
