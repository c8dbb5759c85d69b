// Simple and slow versions of the kernels, which compute every value as a double.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"

namespace roundelay::kernels::reference {

inline constexpr std::array<DType, kDTypeCount> kAllDTypes = {
    DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt64,
    DType::kInt32,   DType::kInt16,   DType::kInt8,    DType::kUInt8,    DType::kBool};
inline constexpr std::array<ReduceOp, 4> kAllOps = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                                                    ReduceOp::kProduct};

// A 16-bit binary format.
struct Format {
  int fraction_bits;
  int least_exponent;  // of normal numbers
  int most_exponent;
};
inline constexpr Format kHalf{10, -14, 15};
inline constexpr Format kBFloat{7, -126, 127};

inline double decode(std::uint16_t bits, Format format) {
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const int exponent = (bits & 0x7fff) >> format.fraction_bits;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == format.most_exponent + 1 - format.least_exponent + 1) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
  }
  const int unit = std::max(exponent, 1) - 1 + format.least_exponent - format.fraction_bits;
  return sign * std::ldexp(fraction + (exponent > 0 ? 1 << format.fraction_bits : 0), unit);
}

inline std::uint16_t encode(double value, Format format) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const int infinity = (format.most_exponent - format.least_exponent + 2) << format.fraction_bits;
  if (std::isnan(value)) return static_cast<std::uint16_t>(infinity | 1 << (format.fraction_bits - 1));
  if (value == 0) return static_cast<std::uint16_t>(sign);
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | infinity);
  const int exponent = std::max(std::ilogb(value), format.least_exponent);
  const double units = std::nearbyint(std::ldexp(std::fabs(value), format.fraction_bits - exponent));
  // Addition carries units above 2^fraction_bits into the exponent.
  const double bits = units + std::ldexp(exponent - format.least_exponent, format.fraction_bits);
  return static_cast<std::uint16_t>(sign | static_cast<int>(std::min(bits, static_cast<double>(infinity))));
}

template <typename T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

template <typename T>
T get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

inline void write(DType dtype, std::byte* to, double value) {
  switch (dtype) {
    case DType::kFloat64:
      return put(to, value);
    case DType::kFloat32:
      return put(to, static_cast<float>(value));
    case DType::kFloat16:
      return put(to, encode(value, kHalf));
    case DType::kBFloat16:
      return put(to, encode(value, kBFloat));
    case DType::kInt64:
      return put(to, static_cast<std::int64_t>(value));
    case DType::kInt32:
      return put(to, static_cast<std::int32_t>(value));
    case DType::kInt16:
      return put(to, static_cast<std::int16_t>(value));
    case DType::kInt8:
      return put(to, static_cast<std::int8_t>(value));
    case DType::kUInt8:
      return put(to, static_cast<std::uint8_t>(value));
    case DType::kBool:
      return put(to, static_cast<std::uint8_t>(value != 0));
    default:  // it is only moved
      return;
  }
}

inline double read(DType dtype, const std::byte* from) {
  switch (dtype) {
    case DType::kFloat64:
      return get<double>(from);
    case DType::kFloat32:
      return static_cast<double>(get<float>(from));
    case DType::kFloat16:
      return decode(get<std::uint16_t>(from), kHalf);
    case DType::kBFloat16:
      return decode(get<std::uint16_t>(from), kBFloat);
    case DType::kInt64:
      return static_cast<double>(get<std::int64_t>(from));
    case DType::kInt32:
      return get<std::int32_t>(from);
    case DType::kInt16:
      return get<std::int16_t>(from);
    case DType::kInt8:
      return get<std::int8_t>(from);
    case DType::kUInt8:
      return get<std::uint8_t>(from);
    case DType::kBool:
      return get<std::uint8_t>(from);
    default:  // it is only moved
      return 0;
  }
}

inline bool is_signed(DType dtype) { return dtype != DType::kUInt8 && dtype != DType::kBool; }

// Returns the i-th number of a sequence of small integers that `dtype` holds exactly.
inline double small_value(DType dtype, std::size_t i, std::size_t seed) {
  const std::size_t mixed = (i * 2654435761U + seed * 40503U) >> 7;
  if (dtype == DType::kBool) return static_cast<double>(mixed % 2);
  const double value = static_cast<double>(mixed % 8);
  return is_signed(dtype) ? value - 4 : value;
}

inline double combine(DType dtype, ReduceOp op, double a, double b) {
  if (op == ReduceOp::kMin) return std::min(a, b);
  if (op == ReduceOp::kMax) return std::max(a, b);
  if (op == ReduceOp::kProduct) return a * b;
  return dtype == DType::kBool ? std::max(a, b) : a + b;
}

// Elements between guards, at an address that is `shift` bytes after an aligned one.
class Guarded {
 public:
  Guarded(DType dtype, std::size_t count, std::size_t shift = 1)
      : shift_(shift), bytes_(count * size_of(dtype)), memory_(shift + bytes_ + kGuard, kMark) {}
  std::byte* data() { return memory_.data() + shift_; }
  [[nodiscard]] bool intact() const {
    const auto marked = [](std::byte byte) { return byte == kMark; };
    const auto end = memory_.begin() + static_cast<std::ptrdiff_t>(shift_ + bytes_);
    return std::all_of(memory_.begin(), memory_.begin() + static_cast<std::ptrdiff_t>(shift_), marked) &&
           std::all_of(end, memory_.end(), marked);
  }

 private:
  static constexpr std::byte kMark{0xa5};
  static constexpr std::size_t kGuard = 64;
  std::size_t shift_;
  std::size_t bytes_;
  Bytes memory_;
};

}  // namespace roundelay::kernels::reference
