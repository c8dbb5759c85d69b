// The loops that select values by magnitude. All functions must be inlined, as in loops.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/arithmetic.h"
#include "kernels/element.h"
#include "kernels/magnitude.h"

namespace roundelay::kernels {

// The number of elements that collect() may write beyond those that it keeps.
inline constexpr std::size_t kCollectSlack = 16;

// Copies the values whose magnitudes are in the range, from the element `begin` on, and their positions if
// `positions` is not null. `to` has `kept` values already; it may be `values`. Returns how many it has then.
[[gnu::always_inline]] inline std::size_t collect_rest(const float* values, std::size_t begin,
                                                       std::size_t count, MagnitudeRange range, float* to,
                                                       std::uint32_t* positions, std::size_t kept) {
  for (std::size_t i = begin; i < count; ++i) {
    const float value = values[i];
    const Magnitude magnitude = magnitude_of(value);
    to[kept] = value;
    if (positions != nullptr) positions[kept] = static_cast<std::uint32_t>(i);
    kept += static_cast<std::size_t>(magnitude >= range.first) &
            static_cast<std::size_t>(magnitude <= range.last);
  }
  return kept;
}

// Adds to counts[t] how many magnitudes reach thresholds[t].
[[gnu::always_inline]] inline void count_loop(const float* values, std::size_t count,
                                              std::span<const Magnitude> thresholds, std::uint64_t* counts) {
  constexpr std::size_t kCached = 1024;  // elements that stay in the first-level cache
  alignas(64) Magnitude magnitudes[kCached];
  for (std::size_t begin = 0; begin < count; begin += kCached) {
    const std::size_t length = std::min(kCached, count - begin);
    for (std::size_t i = 0; i < length; ++i) magnitudes[i] = magnitude_of(values[begin + i]);
    for (std::size_t t = 0; t < thresholds.size(); ++t) {
      const Magnitude threshold = thresholds[t];
      std::int32_t reached = 0;
      for (std::size_t i = 0; i < length; ++i) reached += magnitudes[i] >= threshold ? 1 : 0;
      counts[t] += static_cast<std::uint64_t>(reached);
    }
  }
}

// Adds up at most kMagnitudeBlock elements.
[[gnu::always_inline]] inline MagnitudeSum magnitude_sum_loop(const float* values, std::size_t count) {
  alignas(64) double sum[kMagnitudeSums] = {};
  alignas(64) Magnitude most[kMagnitudeSums] = {};
  const auto add = [&](std::size_t i, std::size_t lane) __attribute__((always_inline)) {
    const Magnitude bits = std::bit_cast<Magnitude>(values[i]) & 0x7fffffff;
    sum[lane] += static_cast<double>(number_of(bits));
    most[lane] = std::max(most[lane], bits);
  };
  std::size_t i = 0;
  for (; i + kMagnitudeSums <= count; i += kMagnitudeSums) {
    for (std::size_t lane = 0; lane < kMagnitudeSums; ++lane) add(i + lane, lane);
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) add(i, lane);
  for (std::size_t half = kMagnitudeSums / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) {
      sum[lane] += sum[lane + half];
      most[lane] = std::max(most[lane], most[lane + half]);
    }
  }
  return {sum[0], std::min(most[0], kInfinite)};
}

}  // namespace roundelay::kernels
