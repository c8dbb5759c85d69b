// The CUDA kernels' arithmetic, compiled for the CPU: it must give all bits of kernels/kernels.h. The
// "device" is a loop over the threads of a block.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cuda/any.cuh"
#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/kernels.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/cuda/values.h"

namespace roundelay::kernels::cuda {
namespace {

using reference::kAllDTypes;
using tests::kScales;
using tests::values_of;

template <DType kTo, DType kFrom>
void copy_by_blocks(std::byte* to, const std::byte* from, std::size_t count, int width, const Scaler& by) {
  // Two packs and four of a thread, in turn.
  constexpr int kThreads = 64;
  const std::size_t packs = kThreads * pack_elements(size_of(kTo), size_of(kFrom));
  std::size_t chunk = kUnroll * packs;
  for (std::size_t begin = 0; begin < count; begin += chunk, chunk = 6 * packs - chunk) {
    for (int thread = 0; thread < kThreads; ++thread) {
      copy_chunk<kTo, kFrom>({thread, kThreads}, to + begin * size_of(kTo), from + begin * size_of(kFrom),
                             static_cast<int>(std::min(chunk, count - begin)), width, by);
    }
  }
}

using Copy = void (*)(std::byte*, const std::byte*, std::size_t, int, const Scaler&);
constexpr std::array kFloating = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};

template <std::size_t... kPairs>
constexpr std::array<Copy, sizeof...(kPairs)> make_copies(std::index_sequence<kPairs...> /*pairs*/) {
  return {&copy_by_blocks<kFloating[kPairs / 4], kFloating[kPairs % 4]>...};
}
constexpr std::array<Copy, 16> kCopies = make_copies(std::make_index_sequence<16>());

Bytes copied(DType to, DType from, const Bytes& source, std::size_t count, std::size_t shift, Scale scale) {
  alignas(16) static std::byte in[1 << 16];
  alignas(16) static std::byte out[1 << 16];
  const int width = shift == 0 ? kPackBytes : 1;
  std::memcpy(in + shift, source.data(), count * size_of(from));
  if (is_floating(to) && is_floating(from)) {
    const Copy copy = kCopies[static_cast<std::size_t>(to) * 4 + static_cast<std::size_t>(from)];
    copy(out + shift, in + shift, count, width, make_scaler(scale));
  } else {
    const AnyTypes types{to, from, static_cast<int>(size_of(to)), static_cast<int>(size_of(from))};
    for (int thread = 0; thread < 64; ++thread) {
      copy_any({thread, 64}, out + shift, in + shift, types, static_cast<int>(count), width,
               make_scaler(scale));
    }
  }
  return {out + shift, out + shift + count * size_of(to)};
}

TEST_CASE("bytes are copied whole and alone, whatever the width", "[cuda]") {
  constexpr int kThreads = 64;
  for (const int width : {16, 8, 4, 2, 1}) {
    for (const std::size_t bytes : {1, 15, 16, 17, 1023, 4096}) {
      alignas(16) std::byte to[4096 + 32] = {};
      alignas(16) std::byte from[4096 + 32] = {};
      const Bytes source = values_of(DType::kUInt8, bytes, 10);
      std::copy(source.begin(), source.end(), from + width);
      for (int thread = 0; thread < kThreads; ++thread)
        copy_bytes({thread, kThreads}, to + width, from + width, static_cast<int>(bytes), width);
      INFO(bytes << " bytes, " << width << " at once");
      REQUIRE(Bytes(to + width, to + width + bytes) == source);
      REQUIRE((to[width - 1] == std::byte{} && to[static_cast<std::size_t>(width) + bytes] == std::byte{}));
    }
  }
}

TEST_CASE("the device's casts give the CPU's bits", "[cuda]") {
  constexpr std::size_t kCount = 5003;
  for (const DType to : kAllDTypes) {
    for (const DType from : kAllDTypes) {
      if (to == from) continue;  // plain copies
      const Bytes source = values_of(from, kCount, 11);
      Bytes expected(kCount * size_of(to));
      cast(expected.data(), to, source.data(), from, kCount);
      INFO(name_of(from) << " to " << name_of(to));
      REQUIRE(copied(to, from, source, kCount, 0, {}) == expected);
      REQUIRE(copied(to, from, source, kCount, 1, {}) == expected);
    }
  }
}

TEST_CASE("the device's scaling gives the CPU's bits", "[cuda]") {
  constexpr std::size_t kCount = 5003;
  for (const DType dtype : kAllDTypes) {
    const Bytes source = values_of(dtype, kCount, 12);
    for (const Scale scale : kScales) {
      if (scale.identity()) continue;
      Bytes expected(kCount * size_of(dtype));
      scale_copy(expected.data(), source.data(), kCount, dtype, scale);
      INFO(name_of(dtype) << " * " << scale.factor << " / " << scale.divisor);
      REQUIRE(copied(dtype, dtype, source, kCount, 0, scale) == expected);
      REQUIRE(copied(dtype, dtype, source, kCount, 3, scale) == expected);
    }
  }
}

// Goes step by step in the type that scaling uses: fp32 for halves and fp32, fp64 for all others.
Bytes scaled_and_cast(DType to, DType from, const Bytes& source, std::size_t count, Scale scale) {
  const DType real = is_floating(from) && size_of(from) <= 4 ? DType::kFloat32 : DType::kFloat64;
  Bytes wide(count * size_of(real));
  cast(wide.data(), real, source.data(), from, count);
  if (from != DType::kBool) scale_copy(wide.data(), wide.data(), count, real, scale);
  Bytes result(count * size_of(to));
  cast(result.data(), to, wide.data(), real, count);
  return result;
}

TEST_CASE("scaled and cast on the device are the bits of one after the other", "[cuda]") {
  constexpr std::size_t kCount = 2501;
  for (const DType to : kAllDTypes) {
    for (const DType from : kAllDTypes) {
      if (to == from) continue;
      const Bytes source = values_of(from, kCount, 13);
      for (const Scale scale : {Scale{1.0, 2}, Scale{1.0, 3}, Scale{0.1, 1}, Scale{-300.0, 1}}) {
        INFO(name_of(from) << " to " << name_of(to) << " * " << scale.factor << " / " << scale.divisor);
        REQUIRE(copied(to, from, source, kCount, 0, scale) ==
                scaled_and_cast(to, from, source, kCount, scale));
      }
    }
  }
}

// Numbers whose quotients are hard to round, or that a multiplication with the reciprocal cannot divide.
template <typename Real>
void check_quotients() {
  std::mt19937_64 random(17);
  using Bits = std::conditional_t<sizeof(Real) == 8, std::uint64_t, std::uint32_t>;
  std::vector<std::int64_t> divisors = {kMostDivisor - 1, kMostDivisor + 1, (std::int64_t{1} << 62) + 3};
  for (std::int64_t divisor = 3; divisor < 100; ++divisor) divisors.push_back(divisor);
  for (int i = 0; i < 100; ++i) divisors.push_back(3 + static_cast<std::int64_t>(random() % (1U << 26U)));
  for (const std::int64_t divisor : divisors) {
    if (multiplies({1.0, divisor})) continue;
    const RealScaler<Real> by = make_scaler({1.0, divisor}).real<Real>();
    for (int i = 0; i < 20000; ++i) {
      Real value = std::bit_cast<Real>(static_cast<Bits>(random()));
      if (i % 4 == 0) value = by.number * static_cast<Real>(static_cast<std::int32_t>(random()));
      if (i % 4 == 1) value = std::nextafter(by.number * static_cast<Real>(random() % 4096), Real{0});
      Real quotients[2] = {value, Real{1}};
      divide_all(quotients, by);
      const Real expected = value / by.number;
      if (expected != expected) {
        REQUIRE(quotients[0] != quotients[0]);
      } else {
        REQUIRE(std::bit_cast<Bits>(quotients[0]) == std::bit_cast<Bits>(expected));
      }
    }
  }
}

TEST_CASE("quotients by a reciprocal have the bits of a division", "[cuda]") {
  check_quotients<float>();
  check_quotients<double>();
}

TEST_CASE("every half is divided as the CPU does", "[cuda]") {
  constexpr std::size_t kAll = std::size_t{1} << 16U;
  Bytes source(2 * kAll), expected(2 * kAll);
  for (std::size_t i = 0; i < kAll; ++i) reference::put(&source[2 * i], static_cast<std::uint16_t>(i));
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (std::int64_t divisor = 3; divisor < 70; ++divisor) {
      if (multiplies({1.0, divisor})) continue;
      scale_copy(expected.data(), source.data(), kAll, dtype, {1.0, divisor});
      INFO(name_of(dtype) << " / " << divisor);
      for (std::size_t begin = 0; begin < kAll; begin += kAll / 4) {
        const Bytes part(source.begin() + 2 * begin, source.begin() + 2 * begin + kAll / 2);
        const Bytes of_part(expected.begin() + 2 * begin, expected.begin() + 2 * begin + kAll / 2);
        REQUIRE(copied(dtype, dtype, part, kAll / 4, 0, {1.0, divisor}) == of_part);
      }
    }
  }
}

TEST_CASE("fp64 that is scaled and cast on the device is rounded once", "[cuda]") {
  // 2049/2048 and a bit: fp32 would round it to the midpoint of two fp16, which goes to even.
  const double value = (1 + 0x1p-11 + 0x1p-40) / 3;
  Bytes source(16 * sizeof(double));
  for (std::size_t i = 0; i < 16; ++i) reference::put(source.data() + 8 * i, value);
  const Bytes half = copied(DType::kFloat16, DType::kFloat64, source, 16, 0, {3.0, 1});
  REQUIRE(reference::get<std::uint16_t>(half.data()) == 0x3c01);
  const Bytes whole = copied(DType::kInt32, DType::kFloat64, source, 16, 0, {-30.0, 1});
  REQUIRE(reference::get<std::int32_t>(whole.data()) == -10);
}

template <typename Form>
void reduce_by_blocks(Reduction& work) {
  constexpr int kThreads = 64;
  work.chunk = kThreads * Form::kPack * Form::kPacks;
  for (std::uint64_t begin = 0; begin < work.count; begin += work.chunk)
    for (int thread = 0; thread < kThreads; ++thread) reduce_chunk<Form>({thread, kThreads}, work, begin);
}

void reduce_any(DType dtype, Reduction& work, bool prescales) {
  with_type(dtype, [&]<DType kType>() {
    with_form<kType>(work.op, static_cast<std::size_t>(work.parts), prescales,
                     [&]<typename Form>() { reduce_by_blocks<Form>(work); });
  });
}

bool reduces_alike(DType dtype, ReduceOp op, std::size_t parts, std::size_t shift, Scale prescale,
                   Scale scale) {
  constexpr std::size_t kCount = 2501;
  const std::size_t bytes = kCount * size_of(dtype);
  struct alignas(16) Memory {
    std::byte at[8 * kCount + 16];
  };
  std::vector<Memory> memory(parts + 1);
  std::vector<const void*> pointers;
  Reduction work{};
  for (std::size_t p = 0; p < parts; ++p) {
    const Bytes values = values_of(dtype, kCount, static_cast<unsigned>(20 + p));
    std::memcpy(memory[p].at + shift, values.data(), bytes);
    pointers.push_back(memory[p].at + shift);
    work.part[p] = memory[p].at + shift;
  }
  Bytes expected(bytes);
  kernels::reduce_parts(expected.data(), pointers, kCount, dtype, op, prescale, scale);
  work.to = memory[parts].at + shift;
  work.count = kCount;
  work.prescale = make_scaler(prescale);
  work.scale = make_scaler(scale);
  work.parts = static_cast<std::int32_t>(parts);
  work.op = op;
  work.width = shift == 0 ? kPackBytes : 1;
  reduce_any(dtype, work, !prescale.identity());
  return std::memcmp(work.to, expected.data(), bytes) == 0;
}

TEST_CASE("the device's reductions give the CPU's bits", "[cuda]") {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : reference::kAllOps) {
      for (const std::size_t parts : {1, 2, 3, 5, 9}) {
        for (const Scale scale : kScales) {
          INFO(name_of(dtype) << " " << name_of(op) << " of " << parts << ", scale " << scale.factor << " / "
                              << scale.divisor);
          REQUIRE(reduces_alike(dtype, op, parts, 0, {}, scale));
          REQUIRE(reduces_alike(dtype, op, parts, 1, {}, scale));
          REQUIRE(reduces_alike(dtype, op, parts, 0, scale, {1.0, 3}));
          REQUIRE(reduces_alike(dtype, op, parts, 0, scale, {0.7, 1}));
        }
      }
    }
  }
}

}  // namespace
}  // namespace roundelay::kernels::cuda
