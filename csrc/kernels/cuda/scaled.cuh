// Scales and converts the elements of a pack. What is rare is left out of the way of the others: a thread
// looks once whether some element of its pack needs more than the quick arithmetic.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/cuda/memory.cuh"

namespace roundelay::kernels::cuda {

// A number, and whether it must be computed in another way.
template <typename Real>
struct Quick {
  Real number;
  bool rare;
};

// Divides by `by.number`. It is rare that the bits are not those of a division: the value is so small that a
// remainder would lose bits, or is not finite, or `by` has no reciprocal.
//
// Markstein: the first correction brings the quotient within an ulp. Then the remainder is exact, and the
// second correction rounds as a division does.
template <typename Real>
ROUNDELAY_DEVICE Quick<Real> quick_quotient(Real value, const RealScaler<Real>& by) {
  constexpr Real kLeast = std::is_same_v<Real, float> ? Real(0x1p-60) : Real(0x1p-900);
  const Real first = value * by.reciprocal;
  const Real second = std::fma(std::fma(-first, by.number, value), by.reciprocal, first);
  const Real third = std::fma(std::fma(-second, by.number, value), by.reciprocal, second);
  const bool small = std::fabs(value) < kLeast && value != Real{};
  return {std::copysign(third, value), third != third || small};  // copysign: -0 / 3 is -0
}

template <Scaling kHow, typename Real>
ROUNDELAY_DEVICE Quick<Real> quickly_scaled(Real value, const RealScaler<Real>& by) {
  if constexpr (kHow == Scaling::kOver) {
    return quick_quotient(value, by);
  } else {
    const Real number = by.template apply<kHow>(value);
    return {number, number != number};
  }
}

// Divides numbers, with the bits of a division.
template <typename Real, int kCount>
ROUNDELAY_DEVICE void divide_all(Real (&values)[kCount], const RealScaler<Real>& by) {
  Real quotients[kCount];
  bool rare = false;
  ROUNDELAY_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const Quick<Real> quick = quick_quotient(values[i], by);
    quotients[i] = quick.number;
    rare = rare || quick.rare;
  }
  if (rare) {
    ROUNDELAY_UNROLL
    for (int i = 0; i < kCount; ++i) quotients[i] = values[i] / by.number;
  }
  ROUNDELAY_UNROLL
  for (int i = 0; i < kCount; ++i) values[i] = quotients[i];
}

// Computes to = scale(from) for each element, as scaled() does.
template <DType kTo, DType kFrom, Scaling kHow, int kCount>
ROUNDELAY_DEVICE Pack<Stored<kTo>, kCount> scale_pack(const Pack<Stored<kFrom>, kCount>& from,
                                                      const Scaler& by) {
  using Real = std::conditional_t<kHow == Scaling::kNone, typename Element<kFrom>::Wide,
                                  typename Element<kFrom>::Scaled>;
  Pack<Stored<kTo>, kCount> to;
  bool rare = false;
  ROUNDELAY_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const auto quick = quickly_scaled<kHow>(static_cast<Real>(number<kFrom>(from.at[i])), by.real<Real>());
    to.at[i] = narrowed<kTo>(quick.number);
    rare = rare || quick.rare;
  }
  if (rare) {
    ROUNDELAY_UNROLL
    for (int i = 0; i < kCount; ++i) to.at[i] = scaled<kTo, kFrom, kHow>(from.at[i], by);
  }
  return to;
}

// Scales an element without a change of type, as kernels::scale_copy() does.
template <DType kType>
ROUNDELAY_DEVICE Stored<kType> scaled_alike(Stored<kType> value, const Scaler& by) {
  if (by.how == Scaling::kNone) return value;
  if constexpr (kType == DType::kBool) {
    return value != 0 ? 1 : 0;
  } else if constexpr (kIsFloating<kType>) {
    return by.how == Scaling::kTimes ? scaled<kType, kType, Scaling::kTimes>(value, by)
                                     : scaled<kType, kType, Scaling::kOver>(value, by);
  } else {
    if (kType == DType::kInt64 && divides_exactly<std::int64_t>(by.scale)) {
      return static_cast<Stored<kType>>(value / by.scale.divisor);
    }
    return saturate<Stored<kType>>(by.apply(static_cast<double>(value)));
  }
}

// Does the same for each element of a pack.
template <DType kType, int kCount>
ROUNDELAY_DEVICE void scale_alike(Pack<Stored<kType>, kCount>& pack, const Scaler& by) {
  if (by.how == Scaling::kNone) return;
  if constexpr (kIsFloating<kType>) {
    pack = by.how == Scaling::kTimes ? scale_pack<kType, kType, Scaling::kTimes>(pack, by)
                                     : scale_pack<kType, kType, Scaling::kOver>(pack, by);
  } else {
    ROUNDELAY_UNROLL
    for (int i = 0; i < kCount; ++i) pack.at[i] = scaled_alike<kType>(pack.at[i], by);
  }
}

}  // namespace roundelay::kernels::cuda
