// The sum of many parts' elements, as kernels/cpu/accumulate.h has it for blocks of them.
#pragma once

#include <cstdint>

#include "kernels/arithmetic.h"
#include "kernels/cuda/element.cuh"

namespace roundelay::kernels::cuda {

// fp32 in fp64, halves in fp32.
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
    return result<kType>(static_cast<typename Element<kType>::Wide>(by.apply(sum)));
  }
  ROUNDELAY_DEVICE static Real taken(Stored<kType> value, const Scaler& by) {
    return by.apply(static_cast<Real>(number<kType>(value)));
  }
};

template <>
struct Sum<DType::kFloat64> {
  Compensated sum;

  ROUNDELAY_DEVICE void start(double value, ReduceOp /*op*/, const Scaler& by) {
    sum = {by.apply(value), 0.0};
  }
  ROUNDELAY_DEVICE void add(double value, ReduceOp /*op*/, const Scaler& by) {
    sum = sum.plus(by.apply(value));
  }
  ROUNDELAY_DEVICE double finish(const Scaler& by) const {
    const auto [factor, divisor] = by.doubles;
    if (by.how == Scaling::kTimes) return sum.scaled(ScaleBy<double, true>{factor, divisor});
    if (by.how == Scaling::kOver) return sum.scaled(ScaleBy<double, false>{factor, divisor});
    return sum.scaled(Unscaled{});
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
    if (by.how == Scaling::kNone) return static_cast<Stored<kType>>(sum);
    if (divides_exactly<Stored<kType>>(by.scale)) return divide<Stored<kType>>(sum, by.scale.divisor);
    return saturate<Stored<kType>>(by.apply(static_cast<double>(sum)));
  }
  ROUNDELAY_DEVICE static std::int64_t taken(Stored<kType> value, const Scaler& by) {
    if (by.how == Scaling::kNone) return static_cast<std::int64_t>(value);
    return saturate<std::int64_t>(by.apply(static_cast<double>(value)));
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

// One type's element, scaled as kernels::scale_copy does.
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

// Step by step: each rounded to the type, as reductions without a wider one are.
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
