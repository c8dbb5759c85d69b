// Sums of many parts. The accumulators are wider than the elements, and their blocks stay in the first-level
// cache: each part is read once, each sum is rounded once. Users' factors round separately, before and after
// the sum. All functions must be inlined, as in loops.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "kernels/cpu/loops.h"

namespace roundelay::kernels {

inline constexpr std::size_t kBlock = 512;  // elements; 4 KiB of doubles

using Parts = std::span<const void* const>;

// The sums of one block of elements. add() adds elements [from, to) of a part's block; kFirst: the part is
// the first one and sets the sums. finish() scales the sums by `by` (arithmetic.h), rounds and writes them.
// scale() prescales a part's block.
//
// RealSum is for floating elements. `Real` is fp64 for fp32, and fp32 for halves.
template <DType kType, typename R>
struct RealSum {
  using E = Element<kType>;
  using Stored = typename E::Stored;
  using Real = R;

  template <bool kFirst>
  [[gnu::always_inline]] void add(const std::byte* part, std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      const Real value = static_cast<Real>(E::operand(load<Stored>(part + i * sizeof(Stored))));
      sum[i] = kFirst ? value : sum[i] + value;
    }
  }
  template <typename By>
  [[gnu::always_inline]] void finish(std::byte* destination, std::size_t from, std::size_t to, By by) const {
    for (std::size_t i = from; i < to; ++i) {
      const auto value = static_cast<typename E::Wide>(by(sum[i]));
      store<Stored>(destination + i * sizeof(Stored), E::result(value));
    }
  }
  [[gnu::always_inline]] static void scale(std::byte* destination, const std::byte* source, std::size_t count,
                                           Scale by) {
    scale_loop<kType>(destination, source, count, by);
  }

  alignas(64) Real sum[kBlock];
};

// CompensatedSum is for fp64 elements. It keeps the rounding errors of the additions.
struct CompensatedSum {
  using Stored = double;
  using Real = double;

  template <bool kFirst>
  [[gnu::always_inline]] void add(const std::byte* part, std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      const auto value = load<double>(part + i * sizeof(double));
      const Compensated both = kFirst ? Compensated{value, 0.0} : Compensated{high[i], low[i]}.plus(value);
      high[i] = both.high;
      low[i] = both.low;
    }
  }
  template <typename By>
  [[gnu::always_inline]] void finish(std::byte* destination, std::size_t from, std::size_t to, By by) const {
    for (std::size_t i = from; i < to; ++i)
      store<double>(destination + i * sizeof(double), Compensated{high[i], low[i]}.scaled(by));
  }
  [[gnu::always_inline]] static void scale(std::byte* destination, const std::byte* source, std::size_t count,
                                           Scale by) {
    scale_loop<DType::kFloat64>(destination, source, count, by);
  }

  alignas(64) double high[kBlock];
  alignas(64) double low[kBlock];
};

// Writes the sums, rounded once; an average is divided first.
template <typename Sum>
[[gnu::always_inline]] inline void finish(const Sum& sum, std::byte* destination, std::size_t count,
                                          Scale scale) {
  using Real = typename Sum::Real;
  if (scale.divisor == 1) {
    sum.finish(destination, 0, count, Unscaled{});
  } else if (multiplies(scale)) {
    sum.finish(destination, 0, count, Times<Real>{factor_of<Real>(scale)});
  } else {
    sum.finish(destination, 0, count, Over<Real>{static_cast<Real>(scale.divisor)});
  }
}

// IntegerSum is for integers. Its sums have 64 bits, and wrap around.
template <DType kType>
struct IntegerSum {
  using Stored = typename Element<kType>::Stored;

  template <bool kFirst>
  [[gnu::always_inline]] void add(const std::byte* part, std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      const auto value = static_cast<std::int64_t>(load<Stored>(part + i * sizeof(Stored)));
      sum[i] = kFirst ? value : SumOp{}(sum[i], value);
    }
  }
  [[gnu::always_inline]] static void scale(std::byte* destination, const std::byte* source, std::size_t count,
                                           Scale by) {
    scale_loop<kType>(destination, source, count, by);
  }

  std::int64_t sum[kBlock];
};

template <DType kType>
[[gnu::always_inline]] inline void finish(const IntegerSum<kType>& sum, std::byte* destination,
                                          std::size_t count, Scale scale) {
  using Stored = typename IntegerSum<kType>::Stored;
  if (scale.divisor == 1) {
    for (std::size_t i = 0; i < count; ++i)
      store<Stored>(destination + i * sizeof(Stored), static_cast<Stored>(sum.sum[i]));
  } else if (divides_exactly<Stored>(scale)) {
    for (std::size_t i = 0; i < count; ++i) {
      store<Stored>(destination + i * sizeof(Stored), divide<Stored>(sum.sum[i], scale.divisor));
    }
  } else {
    const auto divisor = static_cast<double>(scale.divisor);
    for (std::size_t i = 0; i < count; ++i) {
      store<Stored>(destination + i * sizeof(Stored),
                    saturate<Stored>(static_cast<double>(sum.sum[i]) / divisor));
    }
  }
}

template <DType kType>
struct SumOf {
  using Type = IntegerSum<kType>;
};
template <>
struct SumOf<DType::kFloat64> {
  using Type = CompensatedSum;
};
template <>
struct SumOf<DType::kFloat32> {
  using Type = RealSum<DType::kFloat32, double>;
};
template <>
struct SumOf<DType::kFloat16> {
  using Type = RealSum<DType::kFloat16, float>;
};
template <>
struct SumOf<DType::kBFloat16> {
  using Type = RealSum<DType::kBFloat16, float>;
};

// Averages two fp32 parts, at most a block, without fp64. Returns false and writes nothing if a sum is not
// finite. The bits equal those of the fp64 computation: rounding a sum of two to fp64 first does not change
// the fp32 result (Figueroa, "When is double rounding innocuous?", 1995), and halving only rounds below
// 2^-125, where the sum is exact.
[[gnu::always_inline]] inline bool average_two(std::byte* destination, const std::byte* a, const std::byte* b,
                                               std::size_t count) {
  alignas(64) float sum[kBlock];
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const float both = load<float>(a + i * sizeof(float)) + load<float>(b + i * sizeof(float));
    largest = std::max(largest, std::bit_cast<std::uint32_t>(both) & 0x7fffffffU);
    sum[i] = both * 0.5F;
  }
  if (largest >= std::bit_cast<std::uint32_t>(std::numeric_limits<float>::infinity())) return false;
  for (std::size_t i = 0; i < count; ++i) store<float>(destination + i * sizeof(float), sum[i]);
  return true;
}

template <typename Sum>
[[gnu::always_inline]] inline bool is_average_of_two(Parts parts, Scale prescale, Scale scale) {
  constexpr bool kFloats = std::is_same_v<Sum, RealSum<DType::kFloat32, double>>;
  return kFloats && parts.size() == 2 && prescale.identity() && scale == Scale{1.0, 2};
}

template <typename Sum>
[[gnu::always_inline]] inline void sum_parts_loop(std::byte* destination, Parts parts, std::size_t count,
                                                  Scale prescale, Scale scale) {
  using Stored = typename Sum::Stored;
  const bool average = is_average_of_two<Sum>(parts, prescale, scale);
  Sum sum;
  alignas(64) std::byte prescaled[kBlock * sizeof(Stored)];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min(kBlock, count - begin);
    const std::size_t offset = begin * sizeof(Stored);
    const auto block_of = [&](const void* part) __attribute__((always_inline)) {
      const std::byte* const block = static_cast<const std::byte*>(part) + offset;
      if (prescale.identity()) return block;
      Sum::scale(prescaled, block, length, prescale);
      return static_cast<const std::byte*>(prescaled);
    };
    std::byte* const to = destination + offset;
    if (average && average_two(to, block_of(parts.front()), block_of(parts.back()), length)) continue;
    sum.template add<true>(block_of(parts.front()), 0, length);
    for (const void* part : parts.subspan(1)) sum.template add<false>(block_of(part), 0, length);
    finish(sum, to, length, scale);
    if (scale.factor != 1.0) Sum::scale(to, to, length, scale);
  }
}

}  // namespace roundelay::kernels
