// Computes one element in a device thread, with the same bits as kernels/cpu. The code is the same constexpr
// arithmetic, except where the device has its own instructions or would make another NaN. Tests compile it
// without CUDA.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/convert.h"
#include "kernels/cuda/scaler.h"
#include "kernels/element.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#ifdef __CUDA_ARCH__
#define ROUNDELAY_UNROLL _Pragma("unroll")
#define ROUNDELAY_ROLLED _Pragma("unroll 1")
#else
#define ROUNDELAY_UNROLL
#define ROUNDELAY_ROLLED
#endif
#ifdef __CUDACC__
#define ROUNDELAY_DEVICE __host__ __device__ __forceinline__
#else
#define ROUNDELAY_DEVICE inline
#endif

namespace roundelay::kernels::cuda {

template <DType kType>
using Stored = typename Element<kType>::Stored;
template <DType kType>
inline constexpr bool kIsHalf = kType == DType::kFloat16 || kType == DType::kBFloat16;
template <DType kType>
inline constexpr bool kIsFloating = kIsHalf<kType> || std::is_floating_point_v<Stored<kType>>;

// Calls a function with the type as a template argument, on the host or on the device.
#ifdef __CUDACC__
#pragma nv_exec_check_disable
#endif
template <typename Function>
ROUNDELAY_DEVICE decltype(auto) with_type(DType type, Function function) {
  switch (type) {
#define ROUNDELAY_CASE(kType) \
  case DType::kType:          \
    return function.template operator()<DType::kType>()
    ROUNDELAY_CASE(kFloat64);
    ROUNDELAY_CASE(kFloat32);
    ROUNDELAY_CASE(kFloat16);
    ROUNDELAY_CASE(kBFloat16);
    ROUNDELAY_CASE(kInt64);
    ROUNDELAY_CASE(kInt32);
    ROUNDELAY_CASE(kInt16);
    ROUNDELAY_CASE(kInt8);
    ROUNDELAY_CASE(kUInt8);
#undef ROUNDELAY_CASE
    default:  // bool: no kernel gets a type that is only moved
      return function.template operator()<DType::kBool>();
  }
}

// Widens a stored value. Exact for numbers; a NaN becomes some NaN.
template <DType kType>
ROUNDELAY_DEVICE typename Element<kType>::Wide number(Stored<kType> value) {
#ifdef __CUDA_ARCH__
  if constexpr (kType == DType::kFloat16) return __half2float(__ushort_as_half(value));
#endif
  return Element<kType>::operand(value);
}

// Narrows a value with one rounding. A NaN becomes some NaN.
template <DType kType>
ROUNDELAY_DEVICE Stored<kType> rounded(typename Element<kType>::Wide value) {
#ifdef __CUDA_ARCH__
  if constexpr (kType == DType::kFloat16) return __half_as_ushort(__float2half_rn(value));
  if constexpr (kType == DType::kBFloat16) return __bfloat16_as_ushort(__float2bfloat16_rn(value));
#endif
  return Element<kType>::narrow(value);
}

// Narrows as rounded() does, but a NaN becomes the type's one quiet NaN.
template <DType kType>
ROUNDELAY_DEVICE Stored<kType> result(typename Element<kType>::Wide value) {
  if constexpr (kIsHalf<kType>) {
    constexpr Stored<kType> kNan = kType == DType::kFloat16 ? 0x7e00 : 0x7fc0;
    return value == value ? rounded<kType>(value) : kNan;
  } else {
    return Element<kType>::result(value);
  }
}

// The bit fields of a floating type: the sign, the exponent, kFraction bits of fraction.
template <DType kType>
struct FloatFormat {
  using Bits =
      std::conditional_t<sizeof(Stored<kType>) == 8, std::uint64_t,
                         std::conditional_t<sizeof(Stored<kType>) == 4, std::uint32_t, std::uint16_t>>;
  static constexpr int kFraction = kType == DType::kFloat64   ? 52
                                   : kType == DType::kFloat32 ? 23
                                   : kType == DType::kFloat16 ? 10
                                                              : 7;
  static constexpr int kSign = 8 * static_cast<int>(sizeof(Bits)) - 1;
  static constexpr Bits kFractionBits = static_cast<Bits>((Bits{1} << kFraction) - 1);
  static constexpr Bits kMagnitudeBits = static_cast<Bits>((Bits{1} << kSign) - 1);
  static constexpr Bits kInfinity = static_cast<Bits>(kMagnitudeBits & ~kFractionBits);
  static constexpr Bits kQuiet = static_cast<Bits>(kInfinity | Bits{1} << (kFraction - 1));
  // The NaN that a processor makes of 0 * infinity.
  static constexpr Bits kMade = static_cast<Bits>(kQuiet | Bits{kMadeNanSign} << kSign);
};

// Converts a NaN: it keeps the sign and the upper bits of the payload, and becomes quiet. If `value` is not a
// NaN, the arithmetic has made one, and this returns kMade.
template <DType kTo, DType kFrom>
ROUNDELAY_DEVICE Stored<kTo> nan_from(Stored<kFrom> value) {
  using To = FloatFormat<kTo>;
  using From = FloatFormat<kFrom>;
  const auto bits = std::bit_cast<typename From::Bits>(value);
  if ((bits & From::kMagnitudeBits) <= From::kInfinity) return std::bit_cast<Stored<kTo>>(To::kMade);
  const auto payload = static_cast<std::uint64_t>(bits & From::kFractionBits) << (52 - From::kFraction);
  const auto sign = static_cast<std::uint64_t>(bits >> From::kSign) << To::kSign;
  return std::bit_cast<Stored<kTo>>(
      static_cast<typename To::Bits>(sign | To::kQuiet | payload >> (52 - To::kFraction)));
}

// Converts a number to kTo.
template <DType kTo, typename Real>
ROUNDELAY_DEVICE Stored<kTo> narrowed(Real value) {
  if constexpr (kIsHalf<kTo> && std::is_same_v<Real, float>) {
    return rounded<kTo>(value);
  } else if constexpr (kIsHalf<kTo>) {
    return rounded<kTo>(round_to_odd(value));
  } else {
    return convert<kTo>(value);
  }
}

// Converts the scaled `value` of `from` to kTo.
template <DType kTo, DType kFrom, typename Real>
ROUNDELAY_DEVICE Stored<kTo> finished(Real value, Stored<kFrom> from) {
  if constexpr (kIsFloating<kTo> && kIsFloating<kFrom>) {
    if (value != value) return nan_from<kTo, kFrom>(from);
  }
  return narrowed<kTo>(value);
}

// Computes to = scale(from), as kernels::scale_copy() and kernels::cast() do. Rounds once if both types are
// the same.
template <DType kTo, DType kFrom, Scaling kHow>
ROUNDELAY_DEVICE Stored<kTo> scaled(Stored<kFrom> from, const Scaler& by) {
  if constexpr (kHow == Scaling::kNone) {
    return finished<kTo, kFrom>(number<kFrom>(from), from);
  } else {
    using Real = typename Element<kFrom>::Scaled;
    const auto value = static_cast<Real>(number<kFrom>(from));
    return finished<kTo, kFrom>(by.real<Real>().template apply<kHow>(value), from);
  }
}

}  // namespace roundelay::kernels::cuda
