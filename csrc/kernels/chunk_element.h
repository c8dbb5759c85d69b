// Computes one element of kernels/chunks.h, and the order of a norm's additions. All is constexpr, so that
// nvcc compiles the same code for the device.
#pragma once

#include "kernels/chunks.h"
#include "kernels/element.h"

namespace roundelay::kernels {

// The type that the residual of kType is computed in.
template <DType kType>
using ResidualOf = typename Element<residual_type(kType)>::Stored;

// Returns sum + value. Zero and a value are the value, -0 too.
template <typename Real>
[[gnu::always_inline]] constexpr Real added(Real sum, Real value) {
  return sum == Real{} ? value : sum + value;
}

// Returns what remains of `value` when `sent` was sent; zero if that is not finite.
template <typename Real>
[[gnu::always_inline]] constexpr Real remainder_of(Real value, Real sent) {
  const Real rest = value - sent;
  return rest - rest == Real{} ? rest : Real{};
}

template <typename Real>
[[gnu::always_inline]] constexpr Real absolute(Real value) {
  return value < Real{} ? -value : value;
}

// The number of partial sums of a norm; element i goes into sum i % kNormSums. The sums are added up in
// halves: of n sums, sum i + n / 2 is added to sum i, for i below n / 2, until one is left.
inline constexpr int kNormSums = 512;

}  // namespace roundelay::kernels
