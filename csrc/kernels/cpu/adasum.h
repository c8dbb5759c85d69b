// The loops of Adasum's kernels. All functions must be inlined, as in loops.h.
#pragma once

#include <cstddef>

#include "kernels/element.h"
#include "kernels/kernels.h"

namespace roundelay::kernels {

// Computes the dot products. Each has eight partial sums, element i in sum i % 8, whatever the vectors'
// width: all ranks get the same bits.
template <typename T>
[[gnu::always_inline]] inline Dots dots_loop(const std::byte* a, const std::byte* b, std::size_t count) {
  constexpr std::size_t kLanes = 8;
  double ab[kLanes] = {}, aa[kLanes] = {}, bb[kLanes] = {};
  const auto add = [&](std::size_t i, std::size_t lane) __attribute__((always_inline)) {
    const auto x = static_cast<double>(load<T>(a + i * sizeof(T)));
    const auto y = static_cast<double>(load<T>(b + i * sizeof(T)));
    ab[lane] += x * y;
    aa[lane] += x * x;
    bb[lane] += y * y;
  };
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) add(i, lane);
  Dots sums;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    sums.ab += ab[lane];
    sums.aa += aa[lane];
    sums.bb += bb[lane];
  }
  return sums;
}

template <typename T>
[[gnu::always_inline]] inline void combine_loop(std::byte* a, double factor_a, const std::byte* b,
                                                double factor_b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(load<T>(a + i * sizeof(T)));
    const auto y = static_cast<double>(load<T>(b + i * sizeof(T)));
    store<T>(a + i * sizeof(T), same_nan(static_cast<T>(x * factor_a + y * factor_b)));
  }
}

}  // namespace roundelay::kernels
