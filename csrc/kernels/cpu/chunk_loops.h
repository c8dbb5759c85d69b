// The loops of residuals and norms. All functions must be inlined, as in loops.h.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "kernels/chunk_element.h"
#include "kernels/cpu/loops.h"

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

// Adds up the partial sums of a norm.
[[gnu::always_inline]] inline double add_up(double* sum) {
  for (std::size_t half = kNormSums / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sum[i] += sum[i + half];
  }
  return sum[0];
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
  return same_nan(static_cast<float>(add_up(sum)));
}

// Widens elements to the type of their residual.
template <DType kType>
struct WidenElements {
  [[gnu::always_inline]] void operator()(std::byte* wide, const std::byte* values, std::size_t count) const {
    map_loop<ResidualOf<kType>, typename Element<kType>::Stored>(wide, values, count,
                                                                 Element<kType>::operand);
  }
};

// Accumulates at most kNormSums elements. `momentum` is not read without momentum.
template <typename Real, typename How>
[[gnu::always_inline]] inline void accumulate_block(double* sum, std::byte* residual, std::byte* momentum,
                                                    const Real* values, std::size_t count, How how) {
  for (std::size_t i = 0; i < count; ++i) {
    Real moved{};
    if constexpr (!std::is_same_v<How, WithoutMomentum>) moved = load<Real>(momentum + i * sizeof(Real));
    const Real kept = how(load<Real>(residual + i * sizeof(Real)), moved, values[i]);
    sum[i] += absolute(static_cast<double>(kept));
    store<Real>(residual + i * sizeof(Real), finite_or_zero(kept));
    if constexpr (!std::is_same_v<How, WithoutMomentum>)
      store<Real>(momentum + i * sizeof(Real), finite_or_zero(moved));
  }
}

// Works on blocks whose values fit into the first-level cache in the residual's type.
template <DType kType, typename How, typename Widen>
[[gnu::always_inline]] inline float accumulate_loop(const ResidualState& kept, std::byte* values,
                                                    std::size_t count, How how, Widen widen) {
  using Real = ResidualOf<kType>;
  constexpr std::size_t kSize = sizeof(typename Element<kType>::Stored);
  alignas(64) double sum[kNormSums] = {};
  alignas(64) Real wide[kNormSums];
  for (std::size_t begin = 0; begin < count; begin += kNormSums) {
    const std::size_t left = count - begin;
    const std::size_t now = left < kNormSums ? left : kNormSums;
    widen(reinterpret_cast<std::byte*>(wide), values + begin * kSize, now);
    std::memset(values + begin * kSize, 0, now * kSize);
    std::byte* const residual = kept.residual + begin * sizeof(Real);
    std::byte* const momentum = kept.momentum == nullptr ? nullptr : kept.momentum + begin * sizeof(Real);
    if (now == kNormSums) {
      accumulate_block(sum, residual, momentum, wide, kNormSums, how);
    } else {
      accumulate_block(sum, residual, momentum, wide, now, how);
    }
  }
  return kept_norm(add_up(sum));
}

// Chooses the kind of momentum.
template <DType kType, typename Widen>
[[gnu::always_inline]] inline float accumulate_any(const ResidualState& kept, std::byte* values,
                                                   std::size_t count, Widen widen) {
  using Real = ResidualOf<kType>;
  const auto factor = static_cast<Real>(kept.how.factor);
  if (kept.momentum == nullptr) return accumulate_loop<kType>(kept, values, count, WithoutMomentum{}, widen);
  if (kept.how.nesterov) return accumulate_loop<kType>(kept, values, count, Nesterov<Real>{factor}, widen);
  return accumulate_loop<kType>(kept, values, count, HeavyBall<Real>{factor}, widen);
}

}  // namespace roundelay::kernels
