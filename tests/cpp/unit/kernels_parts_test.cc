// reduce_parts(): many parts with one rounding; and Adasum's kernels.
#include <array>
#include <bit>
#include <limits>
#include <random>

#include "kernels/cpu/table.h"
#include "kernels/kernels.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/kernels_reference.h"

namespace roundelay::kernels {
namespace {

using reference::Guarded;

// Does the same as reduce_parts(), with the sum of one instruction set.
void sum_by(const Table& table, std::byte* destination, std::span<const void* const> parts, std::size_t count,
            DType dtype, Scale prescale, Scale scale) {
  table.sum_parts[index_of(dtype)](destination, parts, count, prescale, scale);
}

template <typename T>
std::vector<T> reduced(DType dtype, ReduceOp op, const std::vector<T>& values, Scale prescale = {},
                       Scale scale = {}) {
  std::vector<std::vector<T>> memory;
  std::vector<const void*> parts;
  memory.reserve(values.size());
  for (const T value : values) {
    memory.emplace_back(67, value);  // one in each position that a vector loop treats differently
    parts.push_back(memory.back().data());
  }
  std::vector<T> results;
  for (const Table& table : usable_tables()) {
    std::vector<T> result(67);
    if (op == ReduceOp::kSum && dtype != DType::kBool) {
      sum_by(table, reinterpret_cast<std::byte*>(result.data()), parts, 67, dtype, prescale, scale);
    }
    results.push_back(result.front());
    results.push_back(result.back());
  }
  std::vector<T> result(67);
  reduce_parts(result.data(), parts, 67, dtype, op, prescale, scale);
  if (op != ReduceOp::kSum || dtype == DType::kBool) results.clear();
  results.push_back(result.front());
  results.push_back(result.back());
  return results;
}

template <typename T>
bool all_are(const std::vector<T>& values, T expected) {
  return !values.empty() && std::all_of(values.begin(), values.end(), [&](T value) {
    return std::memcmp(&value, &expected, sizeof(T)) == 0;
  });
}

std::size_t wrongly_reduced(DType dtype, ReduceOp op, std::size_t parts, std::size_t count, int destination) {
  const std::size_t size = size_of(dtype);
  std::vector<Guarded> memory;
  std::vector<const void*> pointers;
  for (std::size_t p = 0; p < parts; ++p) {
    memory.emplace_back(dtype, count, p % 3);
    for (std::size_t i = 0; i < count; ++i)
      reference::write(dtype, memory[p].data() + i * size, reference::small_value(dtype, i, p));
  }
  for (Guarded& one : memory) pointers.push_back(one.data());
  Guarded apart(dtype, count, 5);
  Guarded& to = destination < 0 ? apart : memory[static_cast<std::size_t>(destination)];
  reduce_parts(to.data(), pointers, count, dtype, op, {}, {});
  std::size_t wrong = to.intact() ? 0 : 1;
  for (std::size_t i = 0; i < count; ++i) {
    double expected = reference::small_value(dtype, i, 0);
    for (std::size_t p = 1; p < parts; ++p)
      expected = reference::combine(dtype, op, expected, reference::small_value(dtype, i, p));
    if (reference::read(dtype, to.data() + i * size) != expected) ++wrong;
  }
  return wrong;
}

TEST_CASE("reduce_parts gives exact results for every dtype, operation and number of parts", "[kernels]") {
  for (const DType dtype : reference::kAllDTypes) {
    for (const ReduceOp op : reference::kAllOps) {
      for (const std::size_t parts : {1, 2, 3, 4, 5}) {
        if (op == ReduceOp::kProduct && parts > 3) continue;  // int8 would overflow
        for (const std::size_t count : {0, 1, 7, 512, 513, 4099}) {
          INFO(name_of(dtype) << " " << name_of(op) << " " << parts << " parts of " << count);
          REQUIRE(wrongly_reduced(dtype, op, parts, count, -1) == 0);
          REQUIRE(wrongly_reduced(dtype, op, parts, count, 0) == 0);
          REQUIRE(wrongly_reduced(dtype, op, parts, count, static_cast<int>(parts) - 1) == 0);
        }
      }
    }
  }
}

// Returns random bits without the exponents at the limits, where sums overflow or averages lose bits.
template <typename T>
std::vector<T> random_values(DType dtype, std::size_t count) {
  std::mt19937_64 random(4711);
  std::vector<T> values;
  while (values.size() < count) {
    const std::uint64_t bits = random();
    T value;
    std::memcpy(&value, &bits, sizeof value);
    std::array<std::byte, sizeof(T)> memory;
    std::memcpy(memory.data(), &value, sizeof value);
    const double number = std::fabs(reference::read(dtype, memory.data()));
    const double most = dtype == DType::kFloat16 ? 500 : dtype == DType::kFloat64 ? 1e290 : 1e36;
    if (number <= most && (number >= 1e-290 || number == 0)) values.push_back(value);
  }
  return values;
}

template <typename T>
void averages_come_back(DType dtype) {
  const std::vector<T> values = random_values<T>(dtype, 20011);
  for (const Table& table : usable_tables()) {
    for (const std::size_t ranks : {2, 3, 4, 5, 6, 7, 11, 48}) {
      const std::vector<const void*> parts(ranks, values.data());
      std::vector<T> result(values.size());
      sum_by(table, reinterpret_cast<std::byte*>(result.data()), parts, values.size(), dtype, {},
             {1.0, static_cast<std::int64_t>(ranks)});
      INFO(table.name << " " << name_of(dtype) << " " << ranks);
      REQUIRE(std::memcmp(result.data(), values.data(), values.size() * sizeof(T)) == 0);
    }
  }
}

TEST_CASE("the average of equal values is that value, to the last bit", "[kernels]") {
  averages_come_back<double>(DType::kFloat64);
  averages_come_back<float>(DType::kFloat32);
  averages_come_back<std::uint16_t>(DType::kFloat16);
  averages_come_back<std::uint16_t>(DType::kBFloat16);
}

TEST_CASE("sums are rounded once", "[kernels]") {
  const float large = 16777216.0F;  // 2^24: the next float is 2 away
  REQUIRE(all_are(reduced<float>(DType::kFloat32, ReduceOp::kSum, {large, 1, 1, 1}), large + 4));
  REQUIRE(all_are(reduced<float>(DType::kFloat32, ReduceOp::kSum, {1, large, -large}), 1.0F));
  const double huge = 9007199254740992.0;  // 2^53
  REQUIRE(all_are(reduced<double>(DType::kFloat64, ReduceOp::kSum, {huge, 1, 1, 1}), huge + 4));
  REQUIRE(all_are(reduced<double>(DType::kFloat64, ReduceOp::kSum, {1, huge, -huge}), 1.0));
  REQUIRE(all_are(reduced<double>(DType::kFloat64, ReduceOp::kSum, {-0.0, -0.0, -0.0}), -0.0));
  // fp16: 2048 + 1 + 1 + 1; bf16: 256 + 1 + 1 + 1.
  REQUIRE(all_are(reduced<std::uint16_t>(DType::kFloat16, ReduceOp::kSum, {0x6800, 0x3c00, 0x3c00, 0x3c00}),
                  std::uint16_t{0x6802}));
  REQUIRE(all_are(reduced<std::uint16_t>(DType::kBFloat16, ReduceOp::kSum, {0x4380, 0x3f80, 0x3f80, 0x3f80}),
                  std::uint16_t{0x4382}));
  // These would overflow in the type itself: 40000 + 40000, halved.
  REQUIRE(all_are(reduced<std::uint16_t>(DType::kFloat16, ReduceOp::kSum, {0x78e2, 0x78e2}, {}, {1.0, 2}),
                  std::uint16_t{0x78e2}));
}

// Any bits, and pairs that cancel, overflow or leave almost nothing: the result is fp64's, rounded to fp32.
TEST_CASE("the average of two floats is rounded once, also where their sum is none", "[kernels]") {
  constexpr std::size_t kCount = 200003;
  std::mt19937 random(42);
  const auto float_of = [](std::uint32_t bits) { return std::bit_cast<float>(bits); };
  std::vector<float> a(kCount), b(kCount), result(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto bits = static_cast<std::uint32_t>(random()), other = static_cast<std::uint32_t>(random());
    const bool rare = i / 1000 % 2 == 0;  // some whole blocks are finite
    a[i] = float_of(rare ? bits : bits & 0xbfffffffU);
    b[i] = float_of(rare ? other : other & 0xbfffffffU);
    if (i % 7 == 0) b[i] = float_of((bits & 0x80000fffU) | (other & 0x00ffffffU));  // subnormals
    if (i % 7 == 1) b[i] = -float_of(std::bit_cast<std::uint32_t>(a[i]) + other % 5);
    if (i % 7 == 2 && rare) b[i] = a[i] = float_of(0x7f000000U | (bits & 0x807fffffU));
  }
  for (const Table& table : usable_tables()) {
    sum_by(table, reinterpret_cast<std::byte*>(result.data()), std::array<const void*, 2>{a.data(), b.data()},
           kCount, DType::kFloat32, {}, {1.0, 2});
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      auto want = static_cast<float>((static_cast<double>(a[i]) + static_cast<double>(b[i])) / 2);
      if (want != want) want = std::numeric_limits<float>::quiet_NaN();
      if (std::bit_cast<std::uint32_t>(want) != std::bit_cast<std::uint32_t>(result[i])) ++wrong;
    }
    INFO(table.name);
    CHECK(wrong == 0);
  }
}

// Scales each part and then the result, as a user who multiplies before and after would.
std::size_t wrongly_multiplied(DType dtype, ReduceOp op, std::size_t count, double before, double after) {
  constexpr std::size_t kParts = 3;
  const std::size_t bytes = count * size_of(dtype);
  std::vector<Bytes> plain(kParts, Bytes(bytes)), multiplied = plain;
  std::vector<const void*> parts, products;
  for (std::size_t p = 0; p < kParts; ++p) {
    for (std::size_t i = 0; i < count; ++i)
      reference::write(dtype, plain[p].data() + i * size_of(dtype), reference::small_value(dtype, i, p));
    scale_copy(multiplied[p].data(), plain[p].data(), count, dtype, {before, 1});
    parts.push_back(plain[p].data());
    products.push_back(multiplied[p].data());
  }
  std::size_t wrong = 0;
  for (const std::size_t used : {std::size_t{1}, std::size_t{2}, kParts}) {
    Bytes want(bytes), got(bytes);
    reduce_parts(want.data(), std::span(products).first(used), count, dtype, op, {}, {});
    scale_copy(want.data(), want.data(), count, dtype, {after, 1});
    reduce_parts(got.data(), std::span(parts).first(used), count, dtype, op, {before, 1}, {after, 1});
    wrong += got == want ? 0 : 1;
  }
  return wrong;
}

TEST_CASE("factors are of the parts and of the rounded result", "[kernels]") {
  for (const DType dtype : reference::kAllDTypes) {
    for (const ReduceOp op : reference::kAllOps) {
      for (const double before : {1.0, 0.3, 1.7}) {
        for (const double after : {1.0, 1.0 / 3, 2.5}) {
          INFO(name_of(dtype) << " " << name_of(op) << ", " << before << " and " << after);
          REQUIRE(wrongly_multiplied(dtype, op, 1037, before, after) == 0);
        }
      }
    }
  }
  // In fp32, 0.1 * 3 is a little more than 0.3; the sum has three times that error.
  REQUIRE(all_are(reduced<float>(DType::kFloat32, ReduceOp::kSum, {3, 3, 3}, {0.1, 1}), 0.90000004F));
  // 200 * 300, twice: the average fits fp16, but the sum is too large for it before a factor makes it
  // smaller.
  const std::vector<std::uint16_t> halves = {0x5a40, 0x5a40};
  REQUIRE(all_are(reduced<std::uint16_t>(DType::kFloat16, ReduceOp::kSum, halves, {300.0, 1}, {1.0, 4}),
                  std::uint16_t{0x7753}));
  REQUIRE(all_are(reduced<std::uint16_t>(DType::kFloat16, ReduceOp::kSum, halves, {300.0, 1}, {0.25, 1}),
                  std::uint16_t{0x7c00}));
}

TEST_CASE("parts of integers are prescaled in fp64 and truncated, sums have 64 bits", "[kernels]") {
  const auto i8 = [](std::vector<std::int8_t> values, Scale prescale, Scale scale) {
    return reduced<std::int8_t>(DType::kInt8, ReduceOp::kSum, values, prescale, scale);
  };
  REQUIRE(all_are(i8({127, 127, 127}, {}, {1.0, 3}), std::int8_t{127}));
  REQUIRE(all_are(i8({-128, -128}, {}, {1.0, 2}), std::int8_t{-128}));
  REQUIRE(all_are(i8({-3, -4}, {}, {1.0, 2}), std::int8_t{-3}));
  REQUIRE(all_are(i8({3, 4}, {}, {1.0, 2}), std::int8_t{3}));
  REQUIRE(all_are(i8({127, 1}, {}, {}), std::int8_t{-128}));
  REQUIRE(all_are(i8({3, 3, -3}, {0.5, 1}, {}), std::int8_t{1}));         // 1 + 1 - 1
  REQUIRE(all_are(i8({100, 100}, {2.0, 1}, {1.0, 4}), std::int8_t{63}));  // (127 + 127) / 4
  REQUIRE(all_are(i8({100, 100}, {}, {2.0, 1}), std::int8_t{-112}));      // 200 is -56
  const std::int64_t big = (std::int64_t{1} << 53) + 1;                   // not a double
  REQUIRE(all_are(reduced<std::int64_t>(DType::kInt64, ReduceOp::kSum, {big, big, big}, {}, {1.0, 3}), big));
  REQUIRE(all_are(reduced<std::int64_t>(DType::kInt64, ReduceOp::kSum, {big, 1}, {}, {}), big + 1));
  using L64 = std::numeric_limits<std::int64_t>;
  REQUIRE(all_are(reduced<std::int64_t>(DType::kInt64, ReduceOp::kSum, {L64::max(), 1}, {}, {}), L64::min()));
  const std::int32_t most = std::numeric_limits<std::int32_t>::max();
  for (const std::int64_t divisor : {2, 3, 7}) {
    const std::vector<std::int32_t> values(static_cast<std::size_t>(divisor), most);
    REQUIRE(all_are(reduced<std::int32_t>(DType::kInt32, ReduceOp::kSum, values, {}, {1.0, divisor}), most));
  }
  REQUIRE(all_are(reduced<std::int32_t>(DType::kInt32, ReduceOp::kSum, {most, most}, {}, {1.0, 1 << 22}),
                  std::int32_t{1023}));
}

template <typename T>
void check_special(DType dtype, T nan, T other_nan, T one, T infinity, T minus_infinity) {
  INFO(name_of(dtype));
  for (const ReduceOp op : reference::kAllOps) {
    for (const Scale scale : {Scale{}, Scale{1.0, 3}, Scale{0.5, 1}}) {
      REQUIRE(all_are(reduced<T>(dtype, op, {one, other_nan, one}, {}, scale), nan));
      REQUIRE(all_are(reduced<T>(dtype, op, {one, one, other_nan}, {}, scale), nan));
      REQUIRE(all_are(reduced<T>(dtype, op, {other_nan, nan}, {0.5, 1}, scale), nan));
    }
  }
  REQUIRE(all_are(reduced<T>(dtype, ReduceOp::kSum, {infinity, one, minus_infinity}, {}, {1.0, 3}), nan));
  for (const Scale scale : {Scale{}, Scale{1.0, 3}, Scale{0.5, 1}}) {
    REQUIRE(all_are(reduced<T>(dtype, ReduceOp::kSum, {infinity, one, one}, {}, scale), infinity));
    REQUIRE(
        all_are(reduced<T>(dtype, ReduceOp::kMin, {one, minus_infinity, one}, {}, scale), minus_infinity));
  }
}

TEST_CASE("NaN reaches the result as the one quiet NaN, infinity as itself", "[kernels]") {
  using D = std::numeric_limits<double>;
  using F = std::numeric_limits<float>;
  check_special<double>(DType::kFloat64, D::quiet_NaN(), -std::nan("7"), 1, D::infinity(), -D::infinity());
  check_special<float>(DType::kFloat32, F::quiet_NaN(), -std::nanf("7"), 1, F::infinity(), -F::infinity());
  check_special<std::uint16_t>(DType::kFloat16, 0x7e00, 0xfe07, 0x3c00, 0x7c00, 0xfc00);
  check_special<std::uint16_t>(DType::kBFloat16, 0x7fc0, 0xffc7, 0x3f80, 0x7f80, 0xff80);
}

// Random bits, NaNs included: the position of an element changes nothing.
TEST_CASE("the same elements give the same bits by every instruction set and at every place", "[kernels]") {
  std::mt19937 random(5);
  std::vector<Bytes> memory(3, Bytes(8 * 1300 + 1));
  for (Bytes& one : memory) {
    for (std::byte& b : one) b = static_cast<std::byte>(random());
  }
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const Scale scale : {Scale{}, Scale{1.0, 2}, Scale{1.0, 3}, Scale{0.1, 1}}) {
      const std::size_t size = size_of(dtype), count = 1300;
      const auto sum = [&](const Table& table, std::size_t from) {
        std::vector<const void*> parts;
        for (const Bytes& one : memory) parts.push_back(one.data() + 1 + from * size);
        Bytes result(count * size);
        sum_by(table, result.data() + from * size, parts, count - from, dtype, {}, scale);
        return result;
      };
      const Bytes whole = sum(usable_tables().front(), 0);
      for (const Table& table : usable_tables()) {
        for (const std::size_t from : {0, 1, 509, 1299}) {
          const Bytes result = sum(table, from);
          INFO(table.name << " " << name_of(dtype) << " from " << from);
          REQUIRE(std::equal(result.begin() + static_cast<std::ptrdiff_t>(from * size), result.end(),
                             whole.begin() + static_cast<std::ptrdiff_t>(from * size)));
        }
      }
    }
  }
}

template <typename T>
void check_adasum_kernels(DType dtype) {
  for (const Table& table : usable_tables()) {
    for (const std::size_t count : {0, 1, 8, 29, 1003}) {
      Guarded a(dtype, count), b(dtype, count, 3);
      double ab = 0, aa = 0, bb = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const double x = reference::small_value(dtype, i, 1), y = reference::small_value(dtype, i, 2);
        reference::write(dtype, a.data() + i * sizeof(T), x);
        reference::write(dtype, b.data() + i * sizeof(T), y);
        ab += x * y;
        aa += x * x;
        bb += y * y;
      }
      const Dots dots = table.dots[index_of(dtype)](a.data(), b.data(), count);
      REQUIRE((dots.ab == ab && dots.aa == aa && dots.bb == bb));
      table.combine[index_of(dtype)](a.data(), 0.75, b.data(), -2, count);
      REQUIRE((a.intact() && b.intact()));
      for (std::size_t i = 0; i < count; ++i) {
        REQUIRE(reference::read(dtype, a.data() + i * sizeof(T)) ==
                0.75 * reference::small_value(dtype, i, 1) - 2 * reference::small_value(dtype, i, 2));
      }
    }
  }
}

TEST_CASE("Adasum's kernels are exact where the answers are", "[kernels]") {
  check_adasum_kernels<double>(DType::kFloat64);
  check_adasum_kernels<float>(DType::kFloat32);
  const std::vector<float> a = {3e30F, 4e30F};  // squares exceed fp32
  REQUIRE(dots(a.data(), a.data(), 2, DType::kFloat32).aa == Approx(2.5e61));
  std::vector<float> sum = a;
  combine(sum.data(), 0.5, a.data(), 0.5, 2, DType::kFloat32);
  REQUIRE(sum == a);
}

}  // namespace
}  // namespace roundelay::kernels
