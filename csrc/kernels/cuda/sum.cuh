// Accumulators of one element of many parts. The caller calls start() with the first part's element, add()
// with each other part's, and finish() for the result; the Scaler of the first two is the prescale.
// kernels/cpu/accumulate.h does the same for blocks of elements.
#pragma once

#include <cstdint>

#include "kernels/arithmetic.h"
#include "kernels/cuda/element.cuh"

namespace roundelay::kernels::cuda {

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

// The sum of one floating element: in fp64 for fp32, in fp32 for halves.
template <DType kType>
struct Sum {
  using Real = std::conditional_t<kIsHalf<kType>, float, double>;
  Real sum;

  ROUNDELAY_DEVICE void start(Stored<kType> value, ReduceOp /*op*/, const Scaler& by) {
    sum = taken(value, by);
  }
  ROUNDELAY_DEVICE void add(Stored<kType> value, ReduceOp /*op*/, const Scaler& by) {
    sum = sum + taken(value, by);
  }
  ROUNDELAY_DEVICE Stored<kType> finish(const Scaler& by) const {
    const bool average = by.scale.divisor != 1;
    const Real all = average ? by.apply(sum) : sum;
    const Stored<kType> value = result<kType>(static_cast<typename Element<kType>::Wide>(all));
    return average ? value : scaled_alike<kType>(value, by);
  }
  ROUNDELAY_DEVICE static Real taken(Stored<kType> value, const Scaler& by) {
    return static_cast<Real>(number<kType>(scaled_alike<kType>(value, by)));
  }
};

template <>
struct Sum<DType::kFloat64> {
  Compensated sum;

  ROUNDELAY_DEVICE void start(double value, ReduceOp /*op*/, const Scaler& by) {
    sum = {scaled_alike<DType::kFloat64>(value, by), 0.0};
  }
  ROUNDELAY_DEVICE void add(double value, ReduceOp /*op*/, const Scaler& by) {
    sum = sum.plus(scaled_alike<DType::kFloat64>(value, by));
  }
  ROUNDELAY_DEVICE double finish(const Scaler& by) const {
    const double number = by.doubles.number;
    if (by.scale.divisor == 1) return scaled_alike<DType::kFloat64>(sum.scaled(Unscaled{}), by);
    return by.how == Scaling::kTimes ? sum.scaled(Times<double>{number}) : sum.scaled(Over<double>{number});
  }
};

template <DType kType>
struct IntegerSum {
  std::int64_t sum;

  ROUNDELAY_DEVICE void start(Stored<kType> value, ReduceOp /*op*/, const Scaler& by) {
    sum = taken(value, by);
  }
  ROUNDELAY_DEVICE void add(Stored<kType> value, ReduceOp /*op*/, const Scaler& by) {
    sum = SumOp{}(sum, taken(value, by));
  }
  ROUNDELAY_DEVICE Stored<kType> finish(const Scaler& by) const {
    if (by.scale.divisor == 1) return scaled_alike<kType>(static_cast<Stored<kType>>(sum), by);
    if (divides_exactly<Stored<kType>>(by.scale)) return divide<Stored<kType>>(sum, by.scale.divisor);
    return saturate<Stored<kType>>(by.apply(static_cast<double>(sum)));
  }
  ROUNDELAY_DEVICE static std::int64_t taken(Stored<kType> value, const Scaler& by) {
    return static_cast<std::int64_t>(scaled_alike<kType>(value, by));
  }
};
template <>
struct Sum<DType::kInt64> : IntegerSum<DType::kInt64> {};
template <>
struct Sum<DType::kInt32> : IntegerSum<DType::kInt32> {};
template <>
struct Sum<DType::kInt16> : IntegerSum<DType::kInt16> {};
template <>
struct Sum<DType::kInt8> : IntegerSum<DType::kInt8> {};
template <>
struct Sum<DType::kUInt8> : IntegerSum<DType::kUInt8> {};

// Other reductions, and Sum of bools: each step is rounded to the type.
template <DType kType>
struct Steps {
  Stored<kType> value;

  ROUNDELAY_DEVICE void start(Stored<kType> first, ReduceOp /*op*/, const Scaler& by) {
    value = scaled_alike<kType>(first, by);
  }
  ROUNDELAY_DEVICE void add(Stored<kType> next, ReduceOp op, const Scaler& by) {
    const auto a = number<kType>(value), b = number<kType>(scaled_alike<kType>(next, by));
    value = result<kType>(op == ReduceOp::kMin       ? MinOp{}(a, b)
                          : op == ReduceOp::kMax     ? MaxOp{}(a, b)
                          : op == ReduceOp::kProduct ? ProductOp{}(a, b)
                                                     : SumOp{}(a, b));
  }
  ROUNDELAY_DEVICE Stored<kType> finish(const Scaler& by) const { return scaled_alike<kType>(value, by); }
};

}  // namespace roundelay::kernels::cuda
