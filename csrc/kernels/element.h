// The storage type and the computation type of each dtype, and the four reductions. All is constexpr, so that
// nvcc compiles the same code for the device and both give the same bits.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/dtype.h"
#include "kernels/half.h"

namespace roundelay::kernels {

// Read and write one element. All access goes through these two, because memory may be unaligned even to the
// element.
template <typename T>
[[gnu::always_inline]] constexpr T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
[[gnu::always_inline]] constexpr void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// Turns any NaN into the type's one quiet NaN. Reductions also treat -0 as less than +0. So they are
// commutative to the last bit: two ranks that combine the same pair agree, whichever of them holds the
// accumulator.
template <typename T>
[[gnu::always_inline]] constexpr T same_nan(T value) {
  return value == value ? value : std::numeric_limits<T>::quiet_NaN();
}

// A dtype that the processor computes in directly. Reductions compute in `Wide`, scaling computes in
// `Scaled`. widen() and narrow() convert as IEEE 754 says. Reductions use operand() and result() instead,
// whose NaNs all become the one quiet NaN.
template <typename T, typename S = double>
struct Native {
  using Stored = T;
  using Wide = T;
  using Scaled = S;
  [[gnu::always_inline]] static constexpr Wide widen(Stored value) { return value; }
  [[gnu::always_inline]] static constexpr Stored narrow(Wide value) { return value; }
  [[gnu::always_inline]] static constexpr Wide operand(Stored value) { return value; }
  [[gnu::always_inline]] static constexpr Stored result(Wide value) {
    if constexpr (std::is_floating_point_v<T>) return same_nan(value);
    return value;
  }
};

template <DType>
struct Element;
template <>
struct Element<DType::kFloat64> : Native<double> {};
template <>
struct Element<DType::kFloat32> : Native<float, float> {};
template <>
struct Element<DType::kInt64> : Native<std::int64_t> {};
template <>
struct Element<DType::kInt32> : Native<std::int32_t> {};
template <>
struct Element<DType::kInt16> : Native<std::int16_t> {};
template <>
struct Element<DType::kInt8> : Native<std::int8_t> {};
template <>
struct Element<DType::kUInt8> : Native<std::uint8_t> {};
template <>
struct Element<DType::kBool> {
  using Stored = std::uint8_t;  // every nonzero byte is true
  using Wide = bool;
  [[gnu::always_inline]] static constexpr Wide widen(Stored value) { return value != 0; }
  [[gnu::always_inline]] static constexpr Stored narrow(Wide value) { return value ? 1 : 0; }
  [[gnu::always_inline]] static constexpr Wide operand(Stored value) { return widen(value); }
  [[gnu::always_inline]] static constexpr Stored result(Wide value) { return narrow(value); }
};
template <>
struct Element<DType::kFloat16> {
  using Stored = std::uint16_t;
  using Wide = float;
  using Scaled = float;
  [[gnu::always_inline]] static constexpr Wide widen(Stored value) { return half_to_float(value); }
  [[gnu::always_inline]] static constexpr Stored narrow(Wide value) { return float_to_half(value); }
  [[gnu::always_inline]] static constexpr Wide operand(Stored value) { return widen(value); }
  [[gnu::always_inline]] static constexpr Stored result(Wide value) {
    const std::uint32_t half = float_to_half(value);
    return static_cast<Stored>(select((half & 0x7fffU) > 0x7c00U, 0x7e00U, half));
  }
};
template <>
struct Element<DType::kBFloat16> {
  using Stored = std::uint16_t;
  using Wide = float;
  using Scaled = float;
  [[gnu::always_inline]] static constexpr Wide widen(Stored value) { return bfloat_to_float(value); }
  [[gnu::always_inline]] static constexpr Stored narrow(Wide value) { return float_to_bfloat(value); }
  [[gnu::always_inline]] static constexpr Wide operand(Stored value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
  }
  [[gnu::always_inline]] static constexpr Stored result(Wide value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
    return static_cast<Stored>((value == value ? rounded : 0x7fc00000U) >> 16);
  }
};

// Converts to an integer: truncates toward zero, saturates, turns NaN into 0.
template <typename T>
[[gnu::always_inline]] constexpr T saturate(double value) {
  constexpr T kLeast = std::numeric_limits<T>::min();
  constexpr T kMost = std::numeric_limits<T>::max();
  if constexpr (sizeof(T) < sizeof(double)) {
    value = value == value ? value : 0.0;
    value = value < static_cast<double>(kLeast) ? static_cast<double>(kLeast) : value;
    value = value > static_cast<double>(kMost) ? static_cast<double>(kMost) : value;
    return static_cast<T>(value);
  } else {
    constexpr double kBeyond = 9223372036854775808.0;  // 2^63; the greatest int64 itself is not a double
    if (value != value) return 0;
    if (value >= kBeyond) return kMost;
    return value < -kBeyond ? kLeast : static_cast<T>(value);
  }
}

// An unsigned type with T's bits, at least as wide as int: only such types have a defined wrap-around.
template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

// The four reductions of two elements. For bool, Sum and Max are "or", Product and Min are "and".
struct SumOp {
  template <typename T>
  [[gnu::always_inline]] constexpr T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) {
      return a | b;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<BitsOf<T>>(a) + static_cast<BitsOf<T>>(b));
    } else {
      return a + b;
    }
  }
};

struct ProductOp {
  template <typename T>
  [[gnu::always_inline]] constexpr T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) {
      return a & b;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<BitsOf<T>>(a) * static_cast<BitsOf<T>>(b));
    } else {
      return a * b;
    }
  }
};

struct MinOp {
  template <typename T>
  [[gnu::always_inline]] constexpr T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return a < b ? a : b;
    } else {
      // `one` and `other` are the same lesser number, or two zeros (perhaps one -0), or one of them is NaN.
      // "or" gives the right result in all cases.
      const T one = a < b ? a : b;
      const T other = b < a ? b : a;
      return std::bit_cast<T>(std::bit_cast<BitsOf<T>>(one) | std::bit_cast<BitsOf<T>>(other));
    }
  }
};

struct MaxOp {
  template <typename T>
  [[gnu::always_inline]] constexpr T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return a > b ? a : b;
    } else {
      return -MinOp{}(-a, -b);
    }
  }
};

}  // namespace roundelay::kernels
