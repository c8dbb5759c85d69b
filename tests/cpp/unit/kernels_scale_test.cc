// scale_copy(): one multiplication or division with one rounding, for every dtype and instruction set.
#include <limits>

#include "kernels/cpu/table.h"
#include "kernels/kernels.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/kernels_reference.h"

namespace roundelay::kernels {
namespace {

using reference::Guarded;

double expected_scaled(DType dtype, double value, Scale scale) {
  if (dtype == DType::kBool) return value != 0 ? 1 : 0;
  if (size_of(dtype) <= 4 && is_floating(dtype)) {
    const float product = static_cast<float>(value) * static_cast<float>(scale.factor);
    return static_cast<double>(product / static_cast<float>(scale.divisor));
  }
  const double scaled = value * scale.factor / static_cast<double>(scale.divisor);
  if (is_floating(dtype)) return scaled;
  const double whole = std::trunc(scaled);
  if (dtype == DType::kUInt8) return std::clamp(whole, 0.0, 255.0);
  if (size_of(dtype) == 8) return whole;
  const double limit = std::ldexp(1.0, static_cast<int>(size_of(dtype)) * 8 - 1);
  return std::clamp(whole, -limit, limit - 1);
}

const std::vector<Scale>& scales() {
  static const std::vector<Scale> all = {{0.5, 1}, {1.0, 3},  {1.0, 4},   {0.1, 1},
                                         {1.0, 7}, {-3.0, 1}, {100.0, 1}, {0.0, 1}};
  return all;
}

std::size_t wrongly_scaled(const Table& table, DType dtype, Scale scale, std::size_t count, bool in_place) {
  const std::size_t size = size_of(dtype);
  Guarded source(dtype, count);
  Guarded other(dtype, count, 3);
  for (std::size_t i = 0; i < count; ++i) {
    reference::write(dtype, source.data() + i * size, 5 * reference::small_value(dtype, i, 3));
  }
  std::byte* const destination = in_place ? source.data() : other.data();
  table.scale[index_of(dtype)](destination, source.data(), count, scale);
  std::size_t wrong = source.intact() && other.intact() ? 0 : 1;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = expected_scaled(dtype, 5 * reference::small_value(dtype, i, 3), scale);
    std::array<std::byte, 8> expected{};
    reference::write(dtype, expected.data(), value);
    if (std::memcmp(expected.data(), destination + i * size, size) != 0) ++wrong;
  }
  return wrong;
}

template <typename T>
T scaled(DType dtype, T value, Scale scale) {
  T result{};
  scale_copy(&result, &value, 1, dtype, scale);
  return result;
}

TEST_CASE("scale_copy gives the reference's bits for every dtype, size and alignment", "[kernels]") {
  for (const Table& table : usable_tables()) {
    for (const DType dtype : reference::kAllDTypes) {
      for (const Scale scale : scales()) {
        for (const std::size_t count : {0, 1, 3, 17, 1003}) {
          INFO(table.name << " " << name_of(dtype) << " " << scale.factor << "/" << scale.divisor << " "
                          << count);
          REQUIRE(wrongly_scaled(table, dtype, scale, count, false) == 0);
          REQUIRE(wrongly_scaled(table, dtype, scale, count, true) == 0);
        }
      }
    }
  }
}

TEST_CASE("equal inputs averaged give the input back, for every divisor", "[kernels]") {
  for (std::int64_t ranks = 1; ranks <= 300; ++ranks) {
    const float sum = static_cast<float>(3 * ranks);
    REQUIRE(scaled(DType::kFloat32, sum, {1.0, ranks}) == 3.0F);
    REQUIRE(scaled(DType::kInt64, -7 * ranks, {1.0, ranks}) == -7);
  }
}

TEST_CASE("the identity copies bits as they are", "[kernels]") {
  std::vector<std::uint16_t> nans = {0x7c01, 0xffff, 0x8000};
  std::vector<std::uint16_t> copy(3);
  scale_copy(copy.data(), nans.data(), 3, DType::kFloat16, {});
  REQUIRE(copy == nans);
  scale_copy(nans.data(), nans.data(), 3, DType::kFloat16, {});
  REQUIRE(copy == nans);
  scale_copy(nullptr, nullptr, 0, DType::kInt64, {});
}

TEST_CASE("integers truncate toward zero and saturate", "[kernels]") {
  using L64 = std::numeric_limits<std::int64_t>;
  REQUIRE(scaled<std::int32_t>(DType::kInt32, -7, {1.0, 2}) == -3);
  REQUIRE(scaled<std::int32_t>(DType::kInt32, 7, {1.0, 2}) == 3);
  REQUIRE(scaled<std::int8_t>(DType::kInt8, 100, {2.0, 1}) == 127);
  REQUIRE(scaled<std::int8_t>(DType::kInt8, 100, {-2.0, 1}) == -128);
  REQUIRE(scaled<std::uint8_t>(DType::kUInt8, 100, {-1.0, 1}) == 0);
  REQUIRE(scaled<std::uint8_t>(DType::kUInt8, 200, {1e300, 1}) == 255);
  REQUIRE(scaled<std::int32_t>(DType::kInt32, 5, {std::nan(""), 1}) == 0);
  REQUIRE(scaled<std::int64_t>(DType::kInt64, 5, {std::nan(""), 1}) == 0);
  REQUIRE(scaled<std::int64_t>(DType::kInt64, L64::max(), {2.0, 1}) == L64::max());
  REQUIRE(scaled<std::int64_t>(DType::kInt64, L64::min(), {2.0, 1}) == L64::min());
  REQUIRE(scaled<std::int64_t>(DType::kInt64, L64::min(), {-1.0, 1}) == L64::max());
}

TEST_CASE("64-bit integers divide exactly where the factor is one", "[kernels]") {
  const std::int64_t big = (std::int64_t{1} << 53) + 1;  // not a double
  REQUIRE(scaled<std::int64_t>(DType::kInt64, big, {1.0, 1}) == big);
  REQUIRE(scaled<std::int64_t>(DType::kInt64, 3 * big, {1.0, 3}) == big);
  REQUIRE(scaled<std::int64_t>(DType::kInt64, -3 * big - 2, {1.0, 3}) == -big);
}

TEST_CASE("a true bool stays true", "[kernels]") {
  REQUIRE(scaled<std::uint8_t>(DType::kBool, 1, {0.0, 1}) == 1);
  REQUIRE(scaled<std::uint8_t>(DType::kBool, 7, {1.0, 4}) == 1);
  REQUIRE(scaled<std::uint8_t>(DType::kBool, 0, {5.0, 1}) == 0);
}

}  // namespace
}  // namespace roundelay::kernels
