// Arithmetic on arrays of elements. Thread-safe; allocates nothing; memory may be unaligned.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"
#include "base/status.h"

namespace roundelay::kernels {

// Computes accumulator[i] = accumulator[i] op incoming[i]. Takes Sum, Min, Max and Product only (an Average
// is a Sum with a divisor in Scale; Adasum is not elementwise). Halves are computed in fp32 and rounded once,
// to nearest even. Min and Max propagate NaN as torch does. For bool, Sum and Max are "or", Product and Min
// are "and". Integers wrap around.
void reduce(void* accumulator, const void* incoming, std::size_t count, DType dtype, ReduceOp op);

// Computes destination[i] = scale(op over p of prescale(parts[p][i])), from the first part to the last. Takes
// Sum, Min, Max and Product only, and at least one part. `destination` may be one of the parts. prescale() of
// a part and scale() of the rounded result are scale_copy()'s. A sum is rounded once, an average after the
// division: fp32 is summed in fp64, fp64 with its rounding errors, halves in fp32, integers in 64 bits (they
// wrap around; an average saturates). Other operations go step by step, as reduce() does. Alignment does not
// change the result's bits.
void reduce_parts(void* destination, std::span<const void* const> parts, std::size_t count, DType dtype,
                  ReduceOp op, Scale prescale, Scale scale);

// The dot products a.b, a.a and b.b of Adasum, in fp64.
struct Dots {
  double ab = 0, aa = 0, bb = 0;
};
// Returns them, of two arrays of `count` elements. Takes fp32 and fp64 only.
Dots dots(const void* a, const void* b, std::size_t count, DType dtype);
// Computes a[i] = a[i] * factor_a + b[i] * factor_b in fp64, with one rounding. Takes fp32 and fp64 only.
void combine(void* a, double factor_a, const void* b, double factor_b, std::size_t count, DType dtype);

// Computes destination[i] = scale(source[i]). `destination` may equal `source`. fp32 and fp64 are computed in
// their own type, halves in fp32, integers in fp64: these truncate toward zero and saturate (64-bit integers
// are exact if factor == 1). Each element is rounded once. An identity scale copies.
void scale_copy(void* destination, const void* source, std::size_t count, DType dtype, Scale scale);

// Converts elements to another type, rounded to nearest even; floats truncate toward zero when they become
// integers. The arrays must not overlap, except that they may be equal if both types have the same size.
void cast(void* destination, DType to, const void* source, DType from, std::size_t count);

}  // namespace roundelay::kernels
