// The collection of values with the instructions of AVX2 and AVX-512. They give the same results as
// collect_rest(). Compilers do not find them by themselves.
#pragma once

#include "kernels/cpu/f16c.h"  // defines ROUNDELAY_X86 and the target attributes on x86

#ifdef ROUNDELAY_X86

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/select_loops.h"

namespace roundelay::kernels::select_x86 {

// Returns the last bits of a range without sign. Those of a NaN are above those of infinity.
constexpr Magnitude last_bits(MagnitudeRange range) {
  return range.last < kInfinite ? range.last : 0x7fffffff;
}

ROUNDELAY_AVX512 inline std::size_t collect_avx512(const float* values, std::size_t count,
                                                   MagnitudeRange range, float* to,
                                                   std::uint32_t* positions) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const __m512i first = _mm512_set1_epi32(range.first), last = _mm512_set1_epi32(last_bits(range));
  const auto in_range = [&](__m512 value) ROUNDELAY_AVX512 {
    const __m512i bits = _mm512_and_si512(_mm512_castps_si512(value), magnitude);
    return _mm512_mask_cmple_epi32_mask(_mm512_cmpge_epi32_mask(bits, first), bits, last);
  };
  __m512i place = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  std::size_t kept = 0, i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m512 value = _mm512_loadu_ps(values + i);
    const __mmask16 mask = in_range(value);
    if (mask != 0) {
      _mm512_storeu_ps(to + kept, _mm512_maskz_compress_ps(mask, value));
      if (positions != nullptr)
        _mm512_storeu_si512(positions + kept, _mm512_maskz_compress_epi32(mask, place));
      kept += static_cast<std::size_t>(std::popcount(static_cast<std::uint32_t>(mask)));
    }
    place = _mm512_add_epi32(place, _mm512_set1_epi32(16));
  }
  return collect_rest(values, i, count, range, to, positions, kept);
}

// For each mask of eight elements, the places of those that are set, one a byte.
inline constexpr auto kPlaces = [] {
  std::array<std::uint64_t, 256> places{};
  for (std::size_t mask = 0; mask < places.size(); ++mask) {
    int at = 0;
    for (std::uint64_t place = 0; place < 8; ++place) {
      if ((mask >> place & 1U) != 0) places[mask] |= place << 8 * at++;
    }
  }
  return places;
}();

ROUNDELAY_AVX2 inline std::size_t collect_avx2(const float* values, std::size_t count, MagnitudeRange range,
                                               float* to, std::uint32_t* positions) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  const __m256i first = _mm256_set1_epi32(range.first), last = _mm256_set1_epi32(last_bits(range));
  std::size_t kept = 0, i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 value = _mm256_loadu_ps(values + i);
    const __m256i bits = _mm256_and_si256(_mm256_castps_si256(value), magnitude);
    const __m256i outside = _mm256_or_si256(_mm256_cmpgt_epi32(first, bits), _mm256_cmpgt_epi32(bits, last));
    const auto mask = static_cast<std::uint32_t>(~_mm256_movemask_ps(_mm256_castsi256_ps(outside)) & 0xff);
    if (mask == 0) continue;
    const __m256i places = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(kPlaces[mask])));
    _mm256_storeu_ps(to + kept, _mm256_permutevar8x32_ps(value, places));
    if (positions != nullptr) {
      const __m256i place = _mm256_add_epi32(places, _mm256_set1_epi32(static_cast<int>(i)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(positions + kept), place);
    }
    kept += static_cast<std::size_t>(std::popcount(mask));
  }
  return collect_rest(values, i, count, range, to, positions, kept);
}

}  // namespace roundelay::kernels::select_x86

#endif
