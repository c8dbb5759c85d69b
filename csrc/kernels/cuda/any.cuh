// Conversions from or to an integer type. They are rare for gradients, so one kernel serves all of them and
// looks up the types at run time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/memory.cuh"

namespace roundelay::kernels::cuda {

// A value of any type. One of the two fields holds it exactly.
struct AnyValue {
  bool is_real;
  double real;
  std::int64_t integer;
};

template <DType kFrom>
ROUNDELAY_DEVICE AnyValue scaled_any(Stored<kFrom> from, DType to, const Scaler& by) {
  if constexpr (kIsFloating<kFrom>) {
    using Real = typename Element<kFrom>::Scaled;
    const auto value = static_cast<Real>(number<kFrom>(from));
    return {true, static_cast<double>(by.apply(value)), 0};
  } else if constexpr (kFrom == DType::kBool) {
    return {false, 0, from != 0};
  } else {
    if (by.how == Scaling::kNone) return {false, 0, static_cast<std::int64_t>(from)};
    if (kFrom == DType::kInt64 && to == DType::kInt64 && divides_exactly<std::int64_t>(by.scale)) {
      return {false, 0, static_cast<std::int64_t>(from) / by.scale.divisor};
    }
    return {true, by.apply(static_cast<double>(from)), 0};
  }
}

template <bool kAligned>
ROUNDELAY_DEVICE AnyValue load_any(DType type, const std::byte* from, DType to, const Scaler& by) {
  switch (type) {
#define ROUNDELAY_CASE(kType) \
  case DType::kType:          \
    return scaled_any<DType::kType>(load_one<kAligned, Stored<DType::kType>>(from), to, by)
    ROUNDELAY_CASE(kFloat64);
    ROUNDELAY_CASE(kFloat32);
    ROUNDELAY_CASE(kFloat16);
    ROUNDELAY_CASE(kBFloat16);
    ROUNDELAY_CASE(kInt64);
    ROUNDELAY_CASE(kInt32);
    ROUNDELAY_CASE(kInt16);
    ROUNDELAY_CASE(kInt8);
    ROUNDELAY_CASE(kUInt8);
    ROUNDELAY_CASE(kBool);
#undef ROUNDELAY_CASE
  }
  return {};
}

template <bool kAligned>
ROUNDELAY_DEVICE void store_any(DType type, std::byte* to, const AnyValue& value) {
  switch (type) {
#define ROUNDELAY_CASE(kType)   \
  case DType::kType:            \
    return store_one<kAligned>( \
        to, value.is_real ? convert<DType::kType>(value.real) : convert<DType::kType>(value.integer))
    ROUNDELAY_CASE(kFloat64);
    ROUNDELAY_CASE(kFloat32);
    ROUNDELAY_CASE(kFloat16);
    ROUNDELAY_CASE(kBFloat16);
    ROUNDELAY_CASE(kInt64);
    ROUNDELAY_CASE(kInt32);
    ROUNDELAY_CASE(kInt16);
    ROUNDELAY_CASE(kInt8);
    ROUNDELAY_CASE(kUInt8);
    ROUNDELAY_CASE(kBool);
#undef ROUNDELAY_CASE
  }
}

}  // namespace roundelay::kernels::cuda
