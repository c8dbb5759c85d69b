// The loops of residuals and norms. All functions must be inlined, as in loops.h.
#pragma once

#include <cstddef>

#include "kernels/chunk_element.h"

namespace roundelay::kernels {

template <DType kType>
[[gnu::always_inline]] inline void keep_loop(std::byte* residual, std::byte* values, std::size_t count) {
  using E = Element<kType>;
  using Stored = typename E::Stored;
  using Real = ResidualOf<kType>;
  for (std::size_t i = 0; i < count; ++i) {
    const Real value = E::operand(load<Stored>(values + i * sizeof(Stored)));
    const Real sum = load<Real>(residual + i * sizeof(Real));
    store<Real>(residual + i * sizeof(Real), same_nan(added(sum, value)));
    store<Stored>(values + i * sizeof(Stored), Stored{});
  }
}

template <DType kType>
[[gnu::always_inline]] inline void give_back_loop(std::byte* values, std::byte* residual, std::size_t count) {
  using E = Element<kType>;
  using Stored = typename E::Stored;
  using Real = ResidualOf<kType>;
  for (std::size_t i = 0; i < count; ++i) {
    const Real value = E::operand(load<Stored>(values + i * sizeof(Stored)));
    const Real kept = load<Real>(residual + i * sizeof(Real));
    store<Stored>(values + i * sizeof(Stored), E::result(added(kept, value)));
    store<Real>(residual + i * sizeof(Real), Real{});
  }
}

template <DType kType>
[[gnu::always_inline]] inline void take_loop(std::byte* sent, std::byte* residual, std::size_t count) {
  using E = Element<kType>;
  using Stored = typename E::Stored;
  using Real = ResidualOf<kType>;
  for (std::size_t i = 0; i < count; ++i) {
    const Real value = load<Real>(residual + i * sizeof(Real));
    const Stored rounded = E::result(value);
    store<Stored>(sent + i * sizeof(Stored), rounded);
    store<Real>(residual + i * sizeof(Real), remainder_of<Real>(value, E::operand(rounded)));
  }
}

template <DType kType>
[[gnu::always_inline]] inline float norm_loop(const std::byte* values, std::size_t count) {
  using E = Element<kType>;
  using Stored = typename E::Stored;
  alignas(64) double sum[kNormSums] = {};
  for (std::size_t begin = 0; begin < count; begin += kNormSums) {
    const std::size_t left = count - begin;
    const std::byte* const from = values + begin * sizeof(Stored);
    const auto add = [&](std::size_t i) __attribute__((always_inline)) {
      sum[i] += absolute(static_cast<double>(E::operand(load<Stored>(from + i * sizeof(Stored)))));
    };
    if (left >= kNormSums) {
      for (std::size_t i = 0; i < kNormSums; ++i) add(i);
    } else {
      for (std::size_t i = 0; i < left; ++i) add(i);
    }
  }
  for (std::size_t half = kNormSums / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sum[i] += sum[i + half];
  }
  return same_nan(static_cast<float>(sum[0]));
}

}  // namespace roundelay::kernels
