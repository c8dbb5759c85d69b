// A Scale made ready for a kernel's arguments: what can be decided once is decided on the host.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "kernels/arithmetic.h"

namespace roundelay::kernels::cuda {

enum class Scaling : std::uint8_t {
  kNone,
  kTimes,       // twice: by the factor, by the reciprocal of the divisor, a power of two
  kOver,        // by the factor, then divided
  kFloatTimes,  // fp32 to fp32, once, in fp32: where fp64 and a rounding would give the same bits
  kFloatOver,
};

// The sign of a NaN made by arithmetic is the processor's choice.
#if defined(__x86_64__) || defined(__i386__)
inline constexpr unsigned kMadeNanSign = 1;
#else
inline constexpr unsigned kMadeNanSign = 0;
#endif

template <typename Real>
struct RealScaler {
  Real factor;
  Real divisor;  // kTimes: its reciprocal

  template <Scaling kHow>
  [[gnu::always_inline]] constexpr Real apply(Real value) const {
    if constexpr (kHow == Scaling::kNone) return value;
    return ScaleBy<Real, kHow == Scaling::kTimes>{factor, divisor}(value);
  }
};

struct Scaler {
  Scaling how = Scaling::kNone;
  float float_factor = 1.0F;  // or divisor
  RealScaler<float> floats{1.0F, 1.0F};
  RealScaler<double> doubles{1.0, 1.0};
  Scale scale;

  template <typename Real>
  [[gnu::always_inline]] constexpr const RealScaler<Real>& real() const {
    if constexpr (std::is_same_v<Real, float>) {
      return floats;
    } else {
      return doubles;
    }
  }
  template <typename Real>
  [[gnu::always_inline]] constexpr Real apply(Real value) const {
    if (how == Scaling::kTimes) return real<Real>().template apply<Scaling::kTimes>(value);
    if (how == Scaling::kOver) return real<Real>().template apply<Scaling::kOver>(value);
    return value;
  }
};

inline Scaler make_scaler(Scale scale) {
  Scaler scaler;
  if (scale.identity()) return scaler;
  const bool times = is_power_of_two(scale.divisor);
  const auto real = [&]<typename Real>(RealScaler<Real>& out) {
    const Real divisor = static_cast<Real>(scale.divisor);
    out = {static_cast<Real>(scale.factor), times ? Real{1} / divisor : divisor};
  };
  real(scaler.floats);
  real(scaler.doubles);
  scaler.scale = scale;
  scaler.how = times ? Scaling::kTimes : Scaling::kOver;
  return scaler;
}

// For fp32 that stays fp32. A product of two fp32 is exact in fp64, and a quotient's second rounding, from 53
// to 24 bits, changes nothing (Figueroa, "When is double rounding innocuous?", 1995).
inline Scaler make_float_scaler(Scale scale) {
  Scaler scaler = make_scaler(scale);
  const double product = scaler.doubles.factor * scaler.doubles.divisor;
  const auto factor = static_cast<float>(product);
  constexpr std::int64_t kExact = 1 << 24;
  if (scaler.how == Scaling::kTimes && static_cast<double>(factor) == product) {
    scaler.how = Scaling::kFloatTimes;
    scaler.float_factor = factor;
  } else if (scaler.how == Scaling::kOver && scale.factor == 1.0 && scale.divisor > 0 &&
             scale.divisor < kExact) {
    scaler.how = Scaling::kFloatOver;
    scaler.float_factor = static_cast<float>(scale.divisor);
  }
  return scaler;
}

}  // namespace roundelay::kernels::cuda
