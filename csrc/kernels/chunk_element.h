// Computes one element of kernels/chunks.h, and the order of a norm's additions. All is constexpr, so that
// nvcc compiles the same code for the device.
#pragma once

#include <bit>
#include <cstdint>

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

template <typename Real>
[[gnu::always_inline]] constexpr Real absolute(Real value) {
  return value < Real{} ? -value : value;
}

// Returns whether the number is neither a NaN nor infinite.
template <typename Real>
[[gnu::always_inline]] constexpr bool is_finite(Real value) {
  return value - value == Real{};
}

// Returns the value; zero if it is not finite.
template <typename Real>
[[gnu::always_inline]] constexpr Real finite_or_zero(Real value) {
  return is_finite(value) ? value : Real{};
}

// Returns value - sent: the rest that was not sent; zero if that is not finite.
template <typename Real>
[[gnu::always_inline]] constexpr Real remainder_of(Real value, Real sent) {
  return finite_or_zero(value - sent);
}

// Adds an element to the residual for accumulate(); `momentum` is the element's.
struct WithoutMomentum {
  template <typename Real>
  [[gnu::always_inline]] constexpr Real operator()(Real residual, Real& /*momentum*/, Real value) const {
    return residual + value;
  }
};
template <typename Real>
struct HeavyBall {
  Real factor;
  [[gnu::always_inline]] constexpr Real operator()(Real residual, Real& momentum, Real value) const {
    momentum = factor * momentum + value;
    return residual + momentum;
  }
};
template <typename Real>
struct Nesterov {
  Real factor;
  [[gnu::always_inline]] constexpr Real operator()(Real residual, Real& momentum, Real value) const {
    momentum = factor * (momentum + value);
    return (residual + momentum) + value;
  }
};

// The number of partial sums of a norm; element i goes into sum i % kNormSums. The sums are added up in
// halves: of n sums, sum i + n / 2 is added to sum i, for i below n / 2, until one is left.
inline constexpr int kNormSums = 512;

// Returns the norm of accumulate() for this sum of magnitudes. Bits of floats that are not negative have the
// floats' order: a device's own maximum would turn the quiet NaN into another one.
[[gnu::always_inline]] constexpr float kept_norm(double sum) {
  if (is_finite(sum) && sum > static_cast<double>(kMostNorm)) return kMostNorm;
  constexpr auto kLeast = std::bit_cast<std::uint32_t>(kLeastNorm);
  const auto bits = std::bit_cast<std::uint32_t>(same_nan(static_cast<float>(sum)));
  return std::bit_cast<float>(bits < kLeast ? kLeast : bits);
}

}  // namespace roundelay::kernels
