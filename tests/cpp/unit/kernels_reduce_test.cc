// reduce(): every dtype, operation and instruction set, on inputs with exact results.
#include <limits>

#include "kernels/cpu/table.h"
#include "kernels/kernels.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/kernels_reference.h"

namespace roundelay::kernels {
namespace {

using reference::get;
using reference::Guarded;
using reference::put;

std::size_t wrongly_reduced(const Table& table, DType dtype, ReduceOp op, std::size_t count,
                            std::size_t shift) {
  const std::size_t size = size_of(dtype);
  Guarded ours(dtype, count, shift);
  Guarded theirs(dtype, count, shift + 2);
  for (std::size_t i = 0; i < count; ++i) {
    reference::write(dtype, ours.data() + i * size, reference::small_value(dtype, i, 1));
    reference::write(dtype, theirs.data() + i * size, reference::small_value(dtype, i, 2));
  }
  table.reduce[index_of(dtype)][index_of(op)](ours.data(), theirs.data(), count);
  std::size_t wrong = ours.intact() && theirs.intact() ? 0 : 1;
  for (std::size_t i = 0; i < count; ++i) {
    const double a = reference::small_value(dtype, i, 1);
    const double b = reference::small_value(dtype, i, 2);
    if (reference::read(dtype, ours.data() + i * size) != reference::combine(dtype, op, a, b)) ++wrong;
  }
  return wrong;
}

// Reduces one element in each position that a vector loop treats differently.
template <typename T>
std::vector<T> reduced(DType dtype, ReduceOp op, T a, T b) {
  std::vector<T> results;
  for (const Table& table : usable_tables()) {
    std::vector<T> ours(67, a);
    const std::vector<T> theirs(67, b);
    table.reduce[index_of(dtype)][index_of(op)](reinterpret_cast<std::byte*>(ours.data()),
                                                reinterpret_cast<const std::byte*>(theirs.data()),
                                                ours.size());
    results.push_back(ours.front());
    results.push_back(ours.back());
  }
  return results;
}

template <typename T>
bool all_are(const std::vector<T>& values, T expected) {
  return !values.empty() && std::all_of(values.begin(), values.end(), [&](T value) {
    return std::memcmp(&value, &expected, sizeof(T)) == 0;
  });
}

TEST_CASE("reduce gives exact results for every dtype, operation, size and alignment", "[kernels]") {
  for (const Table& table : usable_tables()) {
    for (const DType dtype : reference::kAllDTypes) {
      for (const ReduceOp op : reference::kAllOps) {
        for (const std::size_t count : {0, 1, 3, 17, 64, 1003}) {
          INFO(table.name << " " << name_of(dtype) << " " << name_of(op) << " " << count);
          REQUIRE(wrongly_reduced(table, dtype, op, count, 0) == 0);
          REQUIRE(wrongly_reduced(table, dtype, op, count, 1) == 0);
        }
      }
    }
  }
}

TEST_CASE("reduce gives exact results for large odd counts", "[kernels]") {
  for (const DType dtype : reference::kAllDTypes) {
    INFO(name_of(dtype));
    REQUIRE(wrongly_reduced(best_table(), dtype, ReduceOp::kSum, 1000003, 1) == 0);
  }
}

TEST_CASE("the public reduce and an accumulator that is its own partner", "[kernels]") {
  std::vector<float> values(1003, 1.5F);
  reduce(values.data(), values.data(), values.size(), DType::kFloat32, ReduceOp::kSum);
  REQUIRE(values == std::vector<float>(1003, 3.0F));
  reduce(nullptr, nullptr, 0, DType::kBFloat16, ReduceOp::kMax);
}

TEST_CASE("integers wrap around", "[kernels]") {
  using L64 = std::numeric_limits<std::int64_t>;
  REQUIRE(all_are(reduced<std::int8_t>(DType::kInt8, ReduceOp::kSum, 127, 1), std::int8_t{-128}));
  REQUIRE(all_are(reduced<std::uint8_t>(DType::kUInt8, ReduceOp::kProduct, 200, 2), std::uint8_t{144}));
  REQUIRE(
      all_are(reduced<std::int16_t>(DType::kInt16, ReduceOp::kProduct, -32768, -1), std::int16_t{-32768}));
  REQUIRE(all_are(reduced<std::int32_t>(DType::kInt32, ReduceOp::kProduct, 65536, 65536), 0));
  REQUIRE(all_are(reduced<std::int64_t>(DType::kInt64, ReduceOp::kSum, L64::max(), 1), L64::min()));
  REQUIRE(all_are(reduced<std::uint8_t>(DType::kUInt8, ReduceOp::kMax, 200, 100), std::uint8_t{200}));
  REQUIRE(all_are(reduced<std::int8_t>(DType::kInt8, ReduceOp::kMin, -56, 100), std::int8_t{-56}));
}

TEST_CASE("any nonzero byte is true, and results are 0 or 1", "[kernels]") {
  REQUIRE(all_are(reduced<std::uint8_t>(DType::kBool, ReduceOp::kSum, 2, 0), std::uint8_t{1}));
  REQUIRE(all_are(reduced<std::uint8_t>(DType::kBool, ReduceOp::kProduct, 2, 4), std::uint8_t{1}));
  REQUIRE(all_are(reduced<std::uint8_t>(DType::kBool, ReduceOp::kMin, 255, 0), std::uint8_t{0}));
}

template <typename T>
void check_special(DType dtype, T nan, T one, T infinity, T minus_infinity, T plus_zero, T minus_zero) {
  INFO(name_of(dtype));
  for (const ReduceOp op : reference::kAllOps) {
    REQUIRE(all_are(reduced<T>(dtype, op, nan, one), nan));
    REQUIRE(all_are(reduced<T>(dtype, op, one, nan), nan));
    REQUIRE(all_are(reduced<T>(dtype, op, nan, nan), nan));
  }
  REQUIRE(all_are(reduced<T>(dtype, ReduceOp::kSum, infinity, minus_infinity), nan));
  REQUIRE(all_are(reduced<T>(dtype, ReduceOp::kProduct, plus_zero, minus_infinity), nan));
  REQUIRE(all_are(reduced<T>(dtype, ReduceOp::kSum, infinity, one), infinity));
  REQUIRE(all_are(reduced<T>(dtype, ReduceOp::kMin, minus_infinity, one), minus_infinity));
  REQUIRE(all_are(reduced<T>(dtype, ReduceOp::kMax, one, infinity), infinity));
  REQUIRE(all_are(reduced<T>(dtype, ReduceOp::kMin, plus_zero, minus_zero), minus_zero));
  REQUIRE(all_are(reduced<T>(dtype, ReduceOp::kMin, minus_zero, plus_zero), minus_zero));
  REQUIRE(all_are(reduced<T>(dtype, ReduceOp::kMax, plus_zero, minus_zero), plus_zero));
  REQUIRE(all_are(reduced<T>(dtype, ReduceOp::kMax, minus_zero, plus_zero), plus_zero));
}

TEST_CASE("NaN wins, infinities behave, and zeros have an order", "[kernels]") {
  using D = std::numeric_limits<double>;
  using F = std::numeric_limits<float>;
  check_special<double>(DType::kFloat64, D::quiet_NaN(), 1.0, D::infinity(), -D::infinity(), 0.0, -0.0);
  check_special<float>(DType::kFloat32, F::quiet_NaN(), 1.0F, F::infinity(), -F::infinity(), 0.0F, -0.0F);
  check_special<std::uint16_t>(DType::kFloat16, 0x7e00, 0x3c00, 0x7c00, 0xfc00, 0, 0x8000);
  check_special<std::uint16_t>(DType::kBFloat16, 0x7fc0, 0x3f80, 0x7f80, 0xff80, 0, 0x8000);
}

TEST_CASE("reductions are commutative to the last bit, whatever the NaNs", "[kernels]") {
  const std::vector<std::uint16_t> odd = {0x7e01, 0xfe00, 0x7c01, 0xfc01, 0xffff,
                                          0x7fc1, 0x8000, 0x0001, 0x7bff};
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const ReduceOp op : reference::kAllOps) {
      for (const std::uint16_t a : odd) {
        for (const std::uint16_t b : odd) {
          const auto one = reduced<std::uint16_t>(dtype, op, a, b);
          REQUIRE(all_are(one, one.front()));  // all instruction sets agree
          REQUIRE(reduced<std::uint16_t>(dtype, op, b, a) == one);
        }
      }
    }
  }
}

TEST_CASE("halves are rounded once, to even", "[kernels]") {
  // 2048 + 1 lies between 2048 and 2050; 2050 + 1 between 2050 and 2052.
  REQUIRE(all_are<std::uint16_t>(reduced<std::uint16_t>(DType::kFloat16, ReduceOp::kSum, 0x6800, 0x3c00),
                                 0x6800));
  REQUIRE(all_are<std::uint16_t>(reduced<std::uint16_t>(DType::kFloat16, ReduceOp::kSum, 0x6801, 0x3c00),
                                 0x6802));
  // 256 + 1 and 258 + 1 in bf16.
  REQUIRE(all_are<std::uint16_t>(reduced<std::uint16_t>(DType::kBFloat16, ReduceOp::kSum, 0x4380, 0x3f80),
                                 0x4380));
  REQUIRE(all_are<std::uint16_t>(reduced<std::uint16_t>(DType::kBFloat16, ReduceOp::kSum, 0x4381, 0x3f80),
                                 0x4382));
  // The largest finite numbers overflow; the smallest subnormal does not vanish.
  REQUIRE(all_are<std::uint16_t>(reduced<std::uint16_t>(DType::kFloat16, ReduceOp::kSum, 0x7bff, 0x7bff),
                                 0x7c00));
  REQUIRE(all_are<std::uint16_t>(reduced<std::uint16_t>(DType::kFloat16, ReduceOp::kSum, 0x0001, 0x0001),
                                 0x0002));
}

}  // namespace
}  // namespace roundelay::kernels
