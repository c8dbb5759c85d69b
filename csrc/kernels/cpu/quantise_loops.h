// The loops that put numbers into 8 bits and take them out. All functions must be inlined, as in loops.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/quantise.h"

namespace roundelay::kernels {

// Returns the largest magnitude; NaN or infinity if a number is not finite. Magnitudes are ordered as their
// bits are, NaN above all.
[[gnu::always_inline]] inline float largest_of(const float* numbers, std::size_t count) {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < count; ++i)
    most = std::max(most, std::bit_cast<std::uint32_t>(numbers[i]) & 0x7fffffffU);
  return std::bit_cast<float>(most);
}

// Returns the block's scale.
[[gnu::always_inline]] inline float quantise_block(std::int8_t* to, float* numbers, std::size_t count) {
  constexpr float kMost = 127;
  // Added to a small number and taken away again, it rounds to an integer, ties to even, in two vector
  // instructions of any processor.
  constexpr float kRounder = 0x1.8p23F;
  const float most = largest_of(numbers, count);
  const float scale = most / kMost;
  const bool tiny = scale < std::numeric_limits<float>::min();  // multiples of it are not exact
  if (tiny) {
    std::memset(to, 0, count);
    return 0;
  }
  if (!std::isfinite(kMost * scale)) {  // so is `most`, or it rounds to an infinity
    std::memset(to, 0, count);
    std::memset(numbers, 0, count * sizeof(float));
    return std::numeric_limits<float>::quiet_NaN();
  }
  for (std::size_t i = 0; i < count; ++i) {
    const float multiple = (numbers[i] / scale + kRounder) - kRounder;
    to[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(multiple));
    numbers[i] -= multiple * scale;
  }
  return scale;
}

[[gnu::always_inline]] inline void quantise_loop(std::byte* to, float* numbers, std::size_t count) {
  for (std::size_t first = 0; first < count; first += EightBits::kBlock) {
    std::byte* const at = to + EightBits{first}.bytes();
    auto* const bytes = reinterpret_cast<std::int8_t*>(at + sizeof(float));
    const float scale = quantise_block(bytes, numbers + first, std::min(EightBits::kBlock, count - first));
    std::memcpy(at, &scale, sizeof scale);
  }
  const EightBits form{count};  // no other memory of this process travels
  std::memset(to + form.bytes() - form.padding(), 0, form.padding());
}

[[gnu::always_inline]] inline void dequantise_loop(float* numbers, const std::byte* from, std::size_t count) {
  for (std::size_t first = 0; first < count; first += EightBits::kBlock) {
    const std::byte* const at = from + EightBits{first}.bytes();
    const auto* const bytes = reinterpret_cast<const std::int8_t*>(at + sizeof(float));
    float scale = 0;
    std::memcpy(&scale, at, sizeof scale);
    const std::size_t size = std::min(EightBits::kBlock, count - first);
    for (std::size_t i = 0; i < size; ++i) numbers[first + i] = static_cast<float>(bytes[i]) * scale;
  }
}

[[gnu::always_inline]] inline void move_exactly_loop(float* to, float* numbers, std::size_t count) {
  for (std::size_t first = 0; first < count; first += EightBits::kBlock) {
    const std::size_t size = std::min(EightBits::kBlock, count - first);
    if (std::isfinite(largest_of(numbers + first, size))) {
      std::memcpy(to + first, numbers + first, size * sizeof(float));
    } else {
      std::fill_n(to + first, size, std::numeric_limits<float>::quiet_NaN());
    }
    std::memset(numbers + first, 0, size * sizeof(float));
  }
}

}  // namespace roundelay::kernels
