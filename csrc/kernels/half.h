// Converts fp16 and bf16 to fp32 and back, exactly as IEEE 754 says: subnormals, infinities, NaN (always made
// quiet), ties to even. The code selects instead of branching, and avoids fp32 subnormals: so loops
// vectorise, and flush-to-zero modes change nothing.
//
//        sign  exponent, its bias  mantissa
// fp32    1      8      127          23       0x7f800000 is infinity; a greater magnitude is a NaN
// fp16    1      5       15          10       0x7c00
// bf16    1      8      127           7       the upper half of an fp32
//
// A NaN is quiet if the first bit of its mantissa is set. To drop bits with ties to even, the code adds half
// of the last bit that stays, less one, plus that last bit itself, and then shifts.
#pragma once

#include <bit>
#include <cstdint>

namespace roundelay::kernels {

// Returns `yes` or `no` without a branch.
[[gnu::always_inline]] constexpr std::uint32_t select(bool which, std::uint32_t yes, std::uint32_t no) {
  const std::uint32_t mask = 0U - static_cast<std::uint32_t>(which);
  return (yes & mask) | (no & ~mask);
}

[[gnu::always_inline]] constexpr float half_to_float(std::uint16_t half) {
  constexpr std::uint32_t kRebias = 112U << 23;    // fp32's exponent bias minus fp16's
  constexpr std::uint32_t kSmallest = 113U << 23;  // 2^-14, the least normal fp16
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7fffU;
  const std::uint32_t normal = (magnitude << 13) + kRebias;
  // The exponent 31 of infinities and NaN has to become 255, which is 31 + 2 * 112. A NaN gets its quiet bit.
  const std::uint32_t special = (normal + kRebias) | (magnitude > 0x7c00U ? 0x400000U : 0U);
  // A subnormal is m/2^10 * 2^-14. With the exponent of 2^-14 its bits mean (1 + m/2^10) * 2^-14, and taking
  // 2^-14 away again is exact.
  const float shifted = std::bit_cast<float>((magnitude << 13) + kSmallest);
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted - std::bit_cast<float>(kSmallest));
  const std::uint32_t finite = select(magnitude < 0x400U, subnormal, normal);
  const std::uint32_t bits = select(magnitude >= 0x7c00U, special, finite);
  return std::bit_cast<float>(sign | bits);
}

[[gnu::always_inline]] constexpr std::uint16_t float_to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  // Rounding may carry into the exponent; so 65520 becomes infinity.
  const std::uint32_t normal = (magnitude - (112U << 23) + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  // The last bit of 0.5 is worth 2^-24, as in a subnormal fp16. So adding 0.5 rounds at the right bit and
  // leaves the mantissa in the last bits; 0x3f000000 is 0.5.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
  const std::uint32_t nan = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
  std::uint32_t half = select(magnitude < 0x38800000U, subnormal, normal);  // 2^-14
  half = select(magnitude >= 0x47800000U, 0x7c00U, half);                   // 2^16
  half = select(magnitude > 0x7f800000U, nan, half);
  return static_cast<std::uint16_t>(((bits >> 16) & 0x8000U) | half);
}

[[gnu::always_inline]] constexpr float bfloat_to_float(std::uint16_t value) {
  const std::uint32_t bits = static_cast<std::uint32_t>(value) << 16;
  return std::bit_cast<float>((bits & 0x7fffffffU) > 0x7f800000U ? bits | 0x400000U : bits);
}

[[gnu::always_inline]] constexpr std::uint16_t float_to_bfloat(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t nan = (bits >> 16) | 0x40U;
  return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded);
}

}  // namespace roundelay::kernels
