// A Scale prepared as a kernel argument: the host decides once how to apply it.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/dtype.h"
#include "kernels/arithmetic.h"

namespace roundelay::kernels::cuda {

// kTimes: multiply with a number; kOver: divide by it.
enum class Scaling : std::uint8_t { kNone, kTimes, kOver };

// The sign of the NaN that this processor's arithmetic makes.
#if defined(__x86_64__) || defined(__i386__)
inline constexpr unsigned kMadeNanSign = 1;
#else
inline constexpr unsigned kMadeNanSign = 0;
#endif

// Quotients of larger divisors may be too small for a multiplication with the reciprocal.
inline constexpr std::int64_t kMostDivisor = std::int64_t{1} << 30U;

template <typename Real>
struct RealScaler {
  Real number;      // the factor or the divisor
  Real reciprocal;  // of a divisor up to kMostDivisor; else a NaN

  template <Scaling kHow>
  [[gnu::always_inline]] constexpr Real apply(Real value) const {
    if constexpr (kHow == Scaling::kNone) return value;
    return kHow == Scaling::kTimes ? Times<Real>{number}(value) : Over<Real>{number}(value);
  }
};

struct Scaler {
  Scaling how = Scaling::kNone;
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
  const bool times = multiplies(scale);
  const auto real = [&]<typename Real>(RealScaler<Real>& out) {
    out.number = times ? factor_of<Real>(scale) : static_cast<Real>(scale.divisor);
    const bool has_reciprocal = scale.divisor > 0 && scale.divisor <= kMostDivisor;
    out.reciprocal = has_reciprocal ? Real{1} / out.number : std::numeric_limits<Real>::quiet_NaN();
  };
  real(scaler.floats);
  real(scaler.doubles);
  scaler.scale = scale;
  scaler.how = times ? Scaling::kTimes : Scaling::kOver;
  return scaler;
}

}  // namespace roundelay::kernels::cuda
