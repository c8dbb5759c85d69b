// Elements and scales for which a GPU's arithmetic could differ from the CPU's.
#pragma once

#include <array>
#include <cmath>
#include <random>

#include "base/bytes.h"
#include "tests/cpp/unit/kernels_reference.h"

namespace roundelay::tests {

inline constexpr std::array kScales = {Scale{},
                                       Scale{1.0, 2},
                                       Scale{1.0, 3},
                                       Scale{0.5, 1},
                                       Scale{0.1, 1},
                                       Scale{1e-3, 1},
                                       Scale{-3.0, 1},
                                       Scale{1.0, 7},
                                       Scale{1.0, 1000},
                                       Scale{0.0, 1},
                                       Scale{1e30, 1},
                                       Scale{1e-30, 1},
                                       Scale{1.0, 1 << 22},
                                       Scale{1.0, (1 << 25) + 1}};

// Returns random bits, and values that are hard to round: halves' bit patterns in wider types, infinities,
// NaNs, zeros, subnormals.
inline Bytes values_of(DType dtype, std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count * size_of(dtype));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (std::size_t i = 0; i + 8 < count; i += 3) {
    std::byte* const at = bytes.data() + i * size_of(dtype);
    const auto half = static_cast<std::uint16_t>(random());
    const double value = kernels::reference::decode(
        half, i % 2 == 0 ? kernels::reference::kHalf : kernels::reference::kBFloat);
    if (dtype == DType::kFloat64) kernels::reference::put(at, value * (1 + 0x1p-11));
    if (dtype == DType::kFloat32) kernels::reference::put(at, static_cast<float>(value) * (1 + 0x1p-11F));
    if (dtype == DType::kFloat16 && i % 5 == 0)
      kernels::reference::put(at, static_cast<std::uint16_t>(half | 0x7c00));
    if (dtype == DType::kBFloat16 && i % 5 == 0)
      kernels::reference::put(at, static_cast<std::uint16_t>(half | 0x7f80));
  }
  return bytes;
}

// Writes random numbers from -2 to 2.
inline void draw_numbers(DType dtype, std::byte* to, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  for (std::size_t i = 0; i < count; ++i)
    kernels::reference::write(dtype, to + i * size_of(dtype),
                              std::ldexp(static_cast<double>(random()), -30) - 2.0);
}

}  // namespace roundelay::tests
