// Converts a number from one dtype to another, with one rounding.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/element.h"

namespace roundelay::kernels {

// Rounds to odd: the last bit records whether the rounding lost anything. A second rounding, to a format with
// at least two bits less, then gives the correctly rounded result.
constexpr float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (value != value || static_cast<double>(nearest) == value) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  const double wide = static_cast<double>(nearest);
  if ((wide < 0 ? -wide : wide) > (value < 0 ? -value : value)) --bits;
  return std::bit_cast<float>(bits | 1U);
}

constexpr float round_to_odd(std::int64_t value) {
  const bool negative = value < 0;
  std::uint64_t magnitude = static_cast<std::uint64_t>(value);
  if (negative) magnitude = 0 - magnitude;
  constexpr std::uint64_t kLost = (1U << 11) - 1;  // 64 bits minus a double's 53
  if (magnitude > (std::uint64_t{1} << 53))
    magnitude = (magnitude & ~kLost) | ((magnitude & kLost) != 0 ? kLost + 1 : 0);
  const double wide = static_cast<double>(magnitude);
  return round_to_odd(negative ? -wide : wide);
}

// Converts one value. Floats truncate toward zero and saturate when they become integers; others round to
// nearest even.
template <DType kTo, typename From>
constexpr typename Element<kTo>::Stored convert(From value) {
  using To = typename Element<kTo>::Stored;
  constexpr bool kHalf = kTo == DType::kFloat16 || kTo == DType::kBFloat16;
  if constexpr (kTo == DType::kBool) {
    return value != From{} ? 1 : 0;
  } else if constexpr (kHalf && (std::is_same_v<From, double> || std::is_same_v<From, std::int64_t>)) {
    return Element<kTo>::narrow(round_to_odd(value));
  } else if constexpr (kHalf && std::is_same_v<From, std::int32_t>) {
    return Element<kTo>::narrow(round_to_odd(static_cast<double>(value)));
  } else if constexpr (kHalf) {
    return Element<kTo>::narrow(static_cast<float>(value));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return saturate<To>(static_cast<double>(value));
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace roundelay::kernels
