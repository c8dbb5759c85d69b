// Scaling of one element, and sums that are more exact than the element type.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "base/dtype.h"
#include "kernels/element.h"

namespace roundelay::kernels {

// Function objects that scale a value. Kernels take one as a template argument.
struct Unscaled {
  template <typename Real>
  [[gnu::always_inline]] constexpr Real operator()(Real value) const {
    return value;
  }
};

template <typename Real>
struct Times {
  Real factor;
  [[gnu::always_inline]] constexpr Real operator()(Real value) const { return value * factor; }
};

template <typename Real>
struct Over {
  Real divisor;
  [[gnu::always_inline]] constexpr Real operator()(Real value) const { return value / divisor; }
};

// Returns whether `scale` is applied as a multiplication. Division by a power of two is: the reciprocal gives
// the same bits.
constexpr bool multiplies(Scale scale) {
  return scale.divisor > 0 && (scale.divisor & (scale.divisor - 1)) == 0;
}

// Returns the number to multiply with.
template <typename Real>
constexpr Real factor_of(Scale scale) {
  return scale.divisor == 1 ? static_cast<Real>(scale.factor) : Real{1} / static_cast<Real>(scale.divisor);
}

// A sum of fp64 values. No type is wider than fp64, so the additions' rounding errors are summed in `low`.
struct Compensated {
  double high;
  double low;

  [[gnu::always_inline]] constexpr Compensated plus(double value) const {
    const double after = high + value;
    const double added = after - high;
    return {after, low + ((high - (after - added)) + (value - added))};
  }
  [[gnu::always_inline]] constexpr double total() const {
    const double sum = high + low;
    return sum == sum && low != 0.0 ? sum : high;  // keeps -0
  }
  template <typename By>
  [[gnu::always_inline]] constexpr double scaled(By by) const {
    return same_nan(by(total()));
  }
  // Returns the quotient, corrected by the remainder of the division: the mean of equal parts is exact to the
  // last bit.
  [[gnu::always_inline]] constexpr double scaled(Over<double> by) const {
    const double sum = total();
    const double rest = (high - sum) + low;
    const double quotient = sum / by.divisor;
    const double product = quotient * by.divisor;
    const double left = (sum - product) - product_error(quotient, by.divisor, product);
    const double whole = quotient + (left + rest) / by.divisor;
    // The correction is NaN if a number is infinite, or nearly so.
    return same_nan(whole == whole ? whole : quotient);
  }
  // Returns quotient * divisor - product exactly, for divisors (a number of ranks) below 2^26. It multiplies
  // the two halves of the quotient's bits, so that each product fits.
  [[gnu::always_inline]] static constexpr double product_error(double quotient, double divisor,
                                                               double product) {
    constexpr std::uint64_t kLowBits = (std::uint64_t{1} << 27U) - 1;
    const double upper = std::bit_cast<double>(std::bit_cast<std::uint64_t>(quotient) & ~kLowBits);
    const double lower = quotient - upper;
    return (upper * divisor - product) + lower * divisor;
  }
};

// Returns whether a sum of integers is divided as an integer. Division in fp64 is exact for narrow types and
// small divisors.
template <typename T>
constexpr bool divides_exactly(Scale scale) {
  constexpr std::int64_t kExactDivisor = sizeof(T) < 8 ? 1 << 20 : 1;
  return scale.divisor > kExactDivisor;
}

// Returns sum / divisor, truncated toward zero and saturated.
template <typename T>
[[gnu::always_inline]] constexpr T divide(std::int64_t sum, std::int64_t divisor) {
  constexpr auto kLeast = static_cast<std::int64_t>(std::numeric_limits<T>::min());
  constexpr auto kMost = static_cast<std::int64_t>(std::numeric_limits<T>::max());
  const std::int64_t value = sum / divisor;
  return static_cast<T>(value < kLeast ? kLeast : value > kMost ? kMost : value);
}

}  // namespace roundelay::kernels
