// The order of |x| of fp32 numbers, as an integer. It is the same on the CPU and on a GPU.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace roundelay::kernels {

// |x| as its bits, which have the order of the numbers. Never negative. A NaN counts as infinity.
using Magnitude = std::int32_t;
inline constexpr Magnitude kInfinite = 0x7f800000;

constexpr Magnitude magnitude_of(float x) {
  const auto bits = static_cast<Magnitude>(std::bit_cast<std::uint32_t>(x) & 0x7fffffffU);
  return bits < kInfinite ? bits : kInfinite;
}

constexpr float number_of(Magnitude magnitude) { return std::bit_cast<float>(magnitude); }

// The magnitudes from `first` to `last`, both included. Neither is above kInfinite.
struct MagnitudeRange {
  Magnitude first = 0;
  Magnitude last = kInfinite;
};

// The sum of |x| of a block, in fp64, and the largest magnitude.
struct MagnitudeSum {
  double sum = 0;
  Magnitude most = 0;
};

// Element i of a block is in partial sum i % kMagnitudeSums. The partial sums are added in halves: i and
// i + n / 2, until one remains. The sums of blocks of kMagnitudeBlock elements are added in their order.
// In the mean of the finite elements the others count as zeros.
inline constexpr std::size_t kMagnitudeSums = 32;
inline constexpr std::size_t kMagnitudeBlock = 16384;

}  // namespace roundelay::kernels
