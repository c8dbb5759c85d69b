// The order of additions in products of low rank, and Gram-Schmidt, for the CPU and a GPU alike. All is
// constexpr, so that nvcc compiles the same code for the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/chunk_element.h"

namespace roundelay::kernels {

// project(): a row has tiles of kTile columns. A tile has kLanes sums, which take its columns in turn; they
// are added up from the first one on, and then the tiles' sums.
inline constexpr std::size_t kTile = 2048;  // the factors of a tile stay in a CPU's first-level cache
inline constexpr std::size_t kWideBytes = 64;
template <typename Real>
inline constexpr std::size_t kLanes = kWideBytes / sizeof(Real);

// project_back(): a column has tiles of kRowTile rows. In a tile, kTogether rows are added up, or one each of
// those that are left, and then these sums; last the tiles' sums.
inline constexpr std::size_t kRowTile = 64;
inline constexpr std::size_t kTogether = 4;

// Returns well mixed bits (SplitMix64).
constexpr std::uint64_t mixed(std::uint64_t bits) {
  bits += 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31U);
}
// Returns number `i` of a random vector: from -1 to 1, such that fp32 holds it exactly.
constexpr double drawn(std::uint64_t seed, std::size_t i) {
  return static_cast<double>(mixed(seed + i) >> 40U) * 0x1p-23 - 1.0;
}

// `List` is one of vectors of Real: dot(k, j) is the sum of products of two of them, in fp64 in the order of
// a norm (chunk_element.h); add(k, factor, j) adds a multiple of vector j to vector k; scale(k, factor)
// multiplies vector k; inverse_root() is the square root's reciprocal.

// Does what orthonormalise() of low_rank.h does.
template <typename Real, typename List>
constexpr void orthonormalise_list(const List& list, std::size_t count) {
  // The part of a vector that rounding may have made.
  constexpr double kDependent = 16 * static_cast<double>(std::numeric_limits<Real>::epsilon());
  for (std::size_t k = 0; k < count; ++k) {
    const double before = list.dot(k, k);
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t j = 0; j < k; ++j) list.add(k, -list.dot(k, j), j);
    }
    const double after = list.dot(k, k);
    if (!is_finite(after)) {
      list.scale(k, std::numeric_limits<double>::quiet_NaN());
    } else if (after <= before * kDependent * kDependent) {
      list.clear(k);
    } else {
      list.scale(k, List::inverse_root(after));
    }
  }
}

// Does what renew() of low_rank.h does. fill(k, seed) draws vector k, and take(k, from) copies vector k of
// `from`.
template <typename List>
constexpr void renew_list(const List& to, const List& from, std::size_t count, std::uint64_t seed) {
  for (std::size_t k = 0; k < count; ++k) {
    const double square = from.dot(k, k);
    if (!is_finite(square)) continue;
    if (square == 0) {
      to.fill(k, mixed(seed + k));
      to.scale(k, List::inverse_root(to.dot(k, k)));
    } else {
      to.take(k, from);
      to.scale(k, List::inverse_root(square));
    }
  }
}

}  // namespace roundelay::kernels
