// The loops of all kernels. They must be inlined into functions that variants.cc compiles for one instruction
// set.
#pragma once

#include <cstddef>

#include "kernels/arithmetic.h"
#include "kernels/element.h"

namespace roundelay::kernels {

template <DType kType, typename Op>
[[gnu::always_inline]] inline void reduce_loop(std::byte* accumulator, const std::byte* incoming,
                                               std::size_t count) {
  using E = Element<kType>;
  using Stored = typename E::Stored;
  for (std::size_t i = 0; i < count; ++i) {
    const auto a = E::operand(load<Stored>(accumulator + i * sizeof(Stored)));
    const auto b = E::operand(load<Stored>(incoming + i * sizeof(Stored)));
    store<Stored>(accumulator + i * sizeof(Stored), E::result(Op{}(a, b)));
  }
}

// Applies `function` to each element. In place has a loop of its own: then neither loop needs an overlap
// check to be vectorised.
template <typename To, typename From, typename F>
[[gnu::always_inline]] inline void map_loop(std::byte* destination, const std::byte* source,
                                            std::size_t count, F function) {
  if (destination == source) {
    for (std::size_t i = 0; i < count; ++i)
      store<To>(destination + i * sizeof(To), function(load<From>(destination + i * sizeof(From))));
    return;
  }
  for (std::size_t i = 0; i < count; ++i)
    store<To>(destination + i * sizeof(To), function(load<From>(source + i * sizeof(From))));
}

template <DType kType, typename By>
struct ScaleElement {
  using E = Element<kType>;
  using Stored = typename E::Stored;
  using Real = typename E::Scaled;
  By by;

  [[gnu::always_inline]] Stored operator()(Stored value) const {
    const Real scaled = by(static_cast<Real>(E::widen(value)));
    if constexpr (std::is_integral_v<typename E::Wide>) {
      return saturate<Stored>(scaled);
    } else {
      return E::narrow(static_cast<typename E::Wide>(scaled));
    }
  }
};

template <DType kType>
[[gnu::always_inline]] inline void scale_loop(std::byte* destination, const std::byte* source,
                                              std::size_t count, Scale scale) {
  using E = Element<kType>;
  using Stored = typename E::Stored;
  if constexpr (kType == DType::kBool) {
    const auto normalise = [](Stored value) { return E::narrow(E::widen(value)); };
    map_loop<Stored, Stored>(destination, source, count, normalise);
  } else {
    using Real = typename E::Scaled;
    if constexpr (kType == DType::kInt64) {
      if (divides_exactly<std::int64_t>(scale)) {
        const auto divide = [by = scale.divisor](Stored value) { return value / by; };
        map_loop<Stored, Stored>(destination, source, count, divide);
        return;
      }
    }
    if (multiplies(scale)) {
      const Times<Real> times{factor_of<Real>(scale)};
      map_loop<Stored, Stored>(destination, source, count, ScaleElement<kType, Times<Real>>{times});
    } else {
      const Over<Real> over{static_cast<Real>(scale.divisor)};
      map_loop<Stored, Stored>(destination, source, count, ScaleElement<kType, Over<Real>>{over});
    }
  }
}

}  // namespace roundelay::kernels
