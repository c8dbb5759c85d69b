// Accumulators of one element of many parts. The caller calls start() with the first part's element, add()
// with each other part's, all of them scaled before, and finish() with the accumulators of a pack for the
// results. kernels/cpu/accumulate.h does the same for blocks of elements.
#pragma once

#include <cstdint>

#include "kernels/arithmetic.h"
#include "kernels/cuda/scaled.cuh"

namespace roundelay::kernels::cuda {

// The sum of one floating element: in fp64 for fp32, in fp32 for halves.
template <DType kType>
struct FloatingSum {
  using Real = std::conditional_t<kIsHalf<kType>, float, double>;
  Real sum;

  ROUNDELAY_DEVICE void start(Stored<kType> value) { sum = static_cast<Real>(number<kType>(value)); }
  ROUNDELAY_DEVICE void add(Stored<kType> value, ReduceOp /*op*/) {
    sum = sum + static_cast<Real>(number<kType>(value));
  }
  template <int kCount>
  ROUNDELAY_DEVICE static Pack<Stored<kType>, kCount> finish(const FloatingSum (&kept)[kCount],
                                                             const Scaler& by) {
    Real sums[kCount];
    ROUNDELAY_UNROLL
    for (int i = 0; i < kCount; ++i) sums[i] = kept[i].sum;
    const bool average = by.scale.divisor != 1;
    const RealScaler<Real>& real = by.real<Real>();
    if (average && by.how == Scaling::kOver) {
      divide_all(sums, real);
    } else if (average) {
      ROUNDELAY_UNROLL
      for (int i = 0; i < kCount; ++i) sums[i] = real.template apply<Scaling::kTimes>(sums[i]);
    }
    Pack<Stored<kType>, kCount> pack;
    ROUNDELAY_UNROLL
    for (int i = 0; i < kCount; ++i)
      pack.at[i] = result<kType>(static_cast<typename Element<kType>::Wide>(sums[i]));
    if (!average) scale_alike<kType>(pack, by);
    return pack;
  }
};

// The sum of one fp64 element.
struct CompensatedSum {
  Compensated sum;

  ROUNDELAY_DEVICE void start(double value) { sum = {value, 0.0}; }
  ROUNDELAY_DEVICE void add(double value, ReduceOp /*op*/) { sum = sum.plus(value); }
  template <int kCount>
  ROUNDELAY_DEVICE static Pack<double, kCount> finish(const CompensatedSum (&kept)[kCount],
                                                      const Scaler& by) {
    const double number = by.doubles.number;
    Pack<double, kCount> pack;
    ROUNDELAY_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const Compensated& all = kept[i].sum;
      pack.at[i] = by.scale.divisor == 1       ? all.scaled(Unscaled{})
                   : by.how == Scaling::kTimes ? all.scaled(Times<double>{number})
                                               : all.scaled(Over<double>{number});
    }
    if (by.scale.divisor == 1) scale_alike<DType::kFloat64>(pack, by);
    return pack;
  }
};

template <DType kType>
struct IntegerSum {
  std::int64_t sum;

  ROUNDELAY_DEVICE void start(Stored<kType> value) { sum = static_cast<std::int64_t>(value); }
  ROUNDELAY_DEVICE void add(Stored<kType> value, ReduceOp /*op*/) {
    sum = SumOp{}(sum, static_cast<std::int64_t>(value));
  }
  template <int kCount>
  ROUNDELAY_DEVICE static Pack<Stored<kType>, kCount> finish(const IntegerSum (&kept)[kCount],
                                                             const Scaler& by) {
    Pack<Stored<kType>, kCount> pack;
    ROUNDELAY_UNROLL
    for (int i = 0; i < kCount; ++i) pack.at[i] = scaled_sum(kept[i].sum, by);
    return pack;
  }

 private:
  ROUNDELAY_DEVICE static Stored<kType> scaled_sum(std::int64_t sum, const Scaler& by) {
    if (by.scale.divisor == 1) return scaled_alike<kType>(static_cast<Stored<kType>>(sum), by);
    if (divides_exactly<Stored<kType>>(by.scale)) return divide<Stored<kType>>(sum, by.scale.divisor);
    return saturate<Stored<kType>>(by.apply(static_cast<double>(sum)));
  }
};
template <DType kType>
using Sum = std::conditional_t<kType == DType::kFloat64, CompensatedSum,
                               std::conditional_t<kIsFloating<kType>, FloatingSum<kType>, IntegerSum<kType>>>;

// Other reductions, and Sum of bools: each step is rounded to the type.
template <DType kType>
struct Steps {
  Stored<kType> value;

  ROUNDELAY_DEVICE void start(Stored<kType> first) { value = first; }
  ROUNDELAY_DEVICE void add(Stored<kType> next, ReduceOp op) {
    const auto a = number<kType>(value), b = number<kType>(next);
    value = result<kType>(op == ReduceOp::kMin       ? MinOp{}(a, b)
                          : op == ReduceOp::kMax     ? MaxOp{}(a, b)
                          : op == ReduceOp::kProduct ? ProductOp{}(a, b)
                                                     : SumOp{}(a, b));
  }
  template <int kCount>
  ROUNDELAY_DEVICE static Pack<Stored<kType>, kCount> finish(const Steps (&kept)[kCount], const Scaler& by) {
    Pack<Stored<kType>, kCount> pack;
    ROUNDELAY_UNROLL
    for (int i = 0; i < kCount; ++i) pack.at[i] = kept[i].value;
    scale_alike<kType>(pack, by);
    return pack;
  }
};

}  // namespace roundelay::kernels::cuda
