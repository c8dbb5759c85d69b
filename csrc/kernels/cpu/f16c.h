// fp16 with the processor's conversion instructions (F16C), eight elements at a time. They give the same bits
// as half.h, NaN payloads included. Compilers do not use them by themselves.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#define ROUNDELAY_X86 1
#include <cpuid.h>
#include <immintrin.h>

#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/chunk_loops.h"
#include "kernels/cpu/loops.h"

#define ROUNDELAY_AVX2 __attribute__((target("avx2,f16c")))
#ifdef __clang__
#define ROUNDELAY_AVX512 __attribute__((target("avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq")))
#else  // gcc uses 32-byte vectors unless told otherwise
#define ROUNDELAY_AVX512 \
  __attribute__((target("avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")))
#endif

namespace roundelay::kernels::f16c {

inline constexpr std::size_t kLanes = 8;

ROUNDELAY_AVX2 inline __m256 load_halves(const std::byte* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

ROUNDELAY_AVX2 inline void store_halves(std::byte* to, __m256 value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}

ROUNDELAY_AVX2 inline __m256 apply(SumOp /*op*/, __m256 a, __m256 b) { return _mm256_add_ps(a, b); }
ROUNDELAY_AVX2 inline __m256 apply(ProductOp /*op*/, __m256 a, __m256 b) { return _mm256_mul_ps(a, b); }
// Combines as element.h does. The instruction returns its second operand if one is NaN or both are zero.
ROUNDELAY_AVX2 inline __m256 apply(MinOp /*op*/, __m256 a, __m256 b) {
  return _mm256_or_ps(_mm256_min_ps(a, b), _mm256_min_ps(b, a));
}
ROUNDELAY_AVX2 inline __m256 apply(MaxOp /*op*/, __m256 a, __m256 b) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return _mm256_xor_ps(apply(MinOp{}, _mm256_xor_ps(a, sign), _mm256_xor_ps(b, sign)), sign);
}

// Turns each NaN into the one quiet NaN.
ROUNDELAY_AVX2 inline __m256 canonical(__m256 value) {
  const __m256 nan = _mm256_set1_ps(std::numeric_limits<float>::quiet_NaN());
  return _mm256_blendv_ps(value, nan, _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
}

template <typename Op>
ROUNDELAY_AVX2 void reduce(std::byte* accumulator, const std::byte* incoming, std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256 value = apply(Op{}, load_halves(accumulator + i * 2), load_halves(incoming + i * 2));
    store_halves(accumulator + i * 2, canonical(value));
  }
  reduce_loop<DType::kFloat16, Op>(accumulator + i * 2, incoming + i * 2, count - i);
}

ROUNDELAY_AVX2 inline __m256 apply(Unscaled /*by*/, __m256 value) { return value; }
ROUNDELAY_AVX2 inline __m256 apply(Times<float> by, __m256 value) {
  return _mm256_mul_ps(value, _mm256_set1_ps(by.factor));
}
ROUNDELAY_AVX2 inline __m256 apply(Over<float> by, __m256 value) {
  return _mm256_div_ps(value, _mm256_set1_ps(by.divisor));
}

template <typename By>
ROUNDELAY_AVX2 inline std::size_t scale_lanes(std::byte* destination, const std::byte* source,
                                              std::size_t count, By by) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    store_halves(destination + i * 2, apply(by, load_halves(source + i * 2)));
  return i;
}

ROUNDELAY_AVX2 inline void scale(std::byte* destination, const std::byte* source, std::size_t count,
                                 Scale by) {
  const std::size_t i =
      multiplies(by) ? scale_lanes(destination, source, count, Times<float>{factor_of<float>(by)})
                     : scale_lanes(destination, source, count, Over<float>{static_cast<float>(by.divisor)});
  scale_loop<DType::kFloat16>(destination + i * 2, source + i * 2, count - i, by);
}

struct Sum : RealSum<DType::kFloat16, float> {
  using Portable = RealSum<DType::kFloat16, float>;

  template <bool kFirst>
  ROUNDELAY_AVX2 void add(const std::byte* part, std::size_t from, std::size_t to) {
    for (; from + kLanes <= to; from += kLanes) {
      const __m256 value = load_halves(part + from * 2);
      _mm256_store_ps(sum + from, kFirst ? value : _mm256_add_ps(_mm256_load_ps(sum + from), value));
    }
    Portable::add<kFirst>(part, from, to);
  }
  template <typename By>
  ROUNDELAY_AVX2 void finish(std::byte* destination, std::size_t from, std::size_t to, By by) const {
    for (; from + kLanes <= to; from += kLanes)
      store_halves(destination + from * 2, canonical(apply(by, _mm256_load_ps(sum + from))));
    Portable::finish(destination, from, to, by);
  }
  ROUNDELAY_AVX2 static void scale(std::byte* destination, const std::byte* source, std::size_t count,
                                   Scale by) {
    f16c::scale(destination, source, count, by);
  }
};

ROUNDELAY_AVX2 inline void sum_parts(std::byte* destination, Parts parts, std::size_t count, Scale prescale,
                                     Scale by) {
  sum_parts_loop<Sum>(destination, parts, count, prescale, by);
}

ROUNDELAY_AVX2 inline void widen(std::byte* floats, const std::byte* halves, std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    _mm256_storeu_ps(reinterpret_cast<float*>(floats + i * 4), load_halves(halves + i * 2));
  }
  for (; i < count; ++i) store(floats + i * 4, half_to_float(load<std::uint16_t>(halves + i * 2)));
}

ROUNDELAY_AVX2 inline void narrow(std::byte* halves, const std::byte* floats, std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store_halves(halves + i * 2, _mm256_loadu_ps(reinterpret_cast<const float*>(floats + i * 4)));
  }
  for (; i < count; ++i) store(halves + i * 2, float_to_half(load<float>(floats + i * 4)));
}

ROUNDELAY_AVX2 inline void take_rounded(std::byte* sent, std::byte* residual, std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    auto* const kept = reinterpret_cast<float*>(residual + i * 4);
    const __m256 value = _mm256_loadu_ps(kept);
    store_halves(sent + i * 2, canonical(value));
    const __m256 rest = _mm256_sub_ps(value, load_halves(sent + i * 2));
    const __m256 finite = _mm256_cmp_ps(_mm256_sub_ps(rest, rest), _mm256_setzero_ps(), _CMP_EQ_OQ);
    _mm256_storeu_ps(kept, _mm256_and_ps(rest, finite));
  }
  take_loop<DType::kFloat16>(sent + i * 2, residual + i * 4, count - i);
}

struct WidenHalves {
  ROUNDELAY_AVX2 void operator()(std::byte* floats, const std::byte* halves, std::size_t count) const {
    widen(floats, halves, count);
  }
};

ROUNDELAY_AVX2 inline float accumulate(const ResidualState& kept, std::byte* values, std::size_t count) {
  return accumulate_any<DType::kFloat16>(kept, values, count, WidenHalves{});
}

}  // namespace roundelay::kernels::f16c

#endif
