// Conversions between any two dtypes, each rounded once.
#include <cmath>
#include <utility>

#include "kernels/cpu/loops.h"
#include "kernels/cpu/table.h"

namespace roundelay::kernels {
namespace {

// Rounding to odd keeps, in the last bit, whether anything was lost; a second rounding to a format with at
// least two bits less is then the right one.
float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (value != value || static_cast<double>(nearest) == value) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1U);
}

float round_to_odd(std::int64_t value) {
  const bool negative = value < 0;
  std::uint64_t magnitude = static_cast<std::uint64_t>(value);
  if (negative) magnitude = 0 - magnitude;
  constexpr std::uint64_t kLost = (1U << 11) - 1;  // 64 bits less the 53 of a double
  if (magnitude > (std::uint64_t{1} << 53))
    magnitude = (magnitude & ~kLost) | ((magnitude & kLost) != 0 ? kLost + 1 : 0);
  const double wide = static_cast<double>(magnitude);
  return round_to_odd(negative ? -wide : wide);
}

template <DType kTo, typename From>
typename Element<kTo>::Stored convert(From value) {
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

template <DType kTo, DType kFrom>
void cast_loop(std::byte* destination, const std::byte* source, std::size_t count) {
  using To = typename Element<kTo>::Stored;
  using From = typename Element<kFrom>::Stored;
  const auto function = [](From value) -> To { return convert<kTo>(Element<kFrom>::widen(value)); };
  map_loop<To, From>(destination, source, count, function);
}

template <std::size_t... kPairs>
constexpr CastTable make_table(std::index_sequence<kPairs...> /*pairs*/) {
  CastTable table{};
  ((table[kPairs / kDTypeCount][kPairs % kDTypeCount] =
        &cast_loop<static_cast<DType>(kPairs / kDTypeCount), static_cast<DType>(kPairs % kDTypeCount)>),
   ...);
  return table;
}

constexpr CastTable kCasts = make_table(std::make_index_sequence<std::size_t{kDTypeCount} * kDTypeCount>());

}  // namespace

const CastTable& portable_casts() { return kCasts; }

}  // namespace roundelay::kernels
