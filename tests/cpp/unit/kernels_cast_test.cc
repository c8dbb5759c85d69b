// cast(): all pairs of dtypes, with one rounding each.
#include <limits>
#include <random>

#include "kernels/kernels.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/kernels_reference.h"

namespace roundelay::kernels {
namespace {

using reference::Guarded;

template <typename To, typename From>
To converted(DType to, From value, DType from) {
  To result{};
  cast(&result, to, &value, from, 1);
  return result;
}

TEST_CASE("small integers survive a cast between any two dtypes", "[kernels]") {
  for (const DType from : reference::kAllDTypes) {
    for (const DType to : reference::kAllDTypes) {
      const bool negative = reference::is_signed(from) && reference::is_signed(to);
      const DType values = to == DType::kBool     ? to
                           : negative             ? from
                           : from == DType::kBool ? from
                                                  : DType::kUInt8;
      for (const std::size_t count : {0, 1, 3, 17, 1003}) {
        Guarded source(from, count);
        Guarded destination(to, count, 3);
        for (std::size_t i = 0; i < count; ++i) {
          reference::write(from, source.data() + i * size_of(from), reference::small_value(values, i, 4));
        }
        cast(destination.data(), to, source.data(), from, count);
        std::size_t wrong = source.intact() && destination.intact() ? 0 : 1;
        for (std::size_t i = 0; i < count; ++i) {
          const double value = reference::read(to, destination.data() + i * size_of(to));
          if (value != reference::small_value(values, i, 4)) ++wrong;
        }
        INFO(name_of(from) << " to " << name_of(to) << " " << count);
        REQUIRE(wrong == 0);
      }
    }
  }
}

TEST_CASE("doubles go to halves in one rounding", "[kernels]") {
  std::mt19937_64 random(99);
  std::size_t wrong = 0;
  for (const auto& [dtype, format] :
       {std::pair{DType::kFloat16, reference::kHalf}, std::pair{DType::kBFloat16, reference::kBFloat}}) {
    for (int i = 0; i < 65536; ++i) {
      // Just beside a midpoint, by less than a float can represent.
      const auto bits = static_cast<std::uint16_t>(random());
      const double low = reference::decode(bits, format);
      const double high = reference::decode(static_cast<std::uint16_t>(bits + 1), format);
      const double middle = (low + high) / 2;
      if (!std::isfinite(middle)) continue;
      for (const double value :
           {middle, std::nextafter(middle, HUGE_VAL), std::nextafter(middle, -HUGE_VAL)}) {
        const auto half = converted<std::uint16_t>(dtype, value, DType::kFloat64);
        if (half != reference::encode(value, format)) ++wrong;
      }
    }
    REQUIRE(converted<std::uint16_t>(dtype, 1e308, DType::kFloat64) == reference::encode(HUGE_VAL, format));
    REQUIRE(converted<std::uint16_t>(dtype, -HUGE_VAL, DType::kFloat64) ==
            reference::encode(-HUGE_VAL, format));
    REQUIRE(std::isnan(
        reference::decode(converted<std::uint16_t>(dtype, std::nan(""), DType::kFloat64), format)));
  }
  REQUIRE(wrong == 0);
}

TEST_CASE("large integers go to halves in one rounding", "[kernels]") {
  // Just above the midpoint of two adjacent bf16 numbers, by less than float or double can represent.
  const std::int64_t middle = (std::int64_t{257} << 53);
  const auto bfloat = [](std::int64_t value) {
    return reference::decode(converted<std::uint16_t>(DType::kBFloat16, value, DType::kInt64),
                             reference::kBFloat);
  };
  REQUIRE(bfloat(middle) == std::ldexp(256.0, 53));
  REQUIRE(bfloat(middle + 1) == std::ldexp(258.0, 53));
  REQUIRE(bfloat(-middle) == -std::ldexp(256.0, 53));
  REQUIRE(bfloat(-middle - 1) == -std::ldexp(258.0, 53));
  REQUIRE(bfloat(std::numeric_limits<std::int64_t>::min()) == -std::ldexp(1.0, 63));
  REQUIRE(bfloat((std::int64_t{257} << 20) + 1) == std::ldexp(258.0, 20));
  REQUIRE(reference::decode(converted<std::uint16_t>(DType::kBFloat16, (257 << 20) + 1, DType::kInt32),
                            reference::kBFloat) == std::ldexp(258.0, 20));
  REQUIRE(converted<std::uint16_t>(DType::kFloat16, std::int64_t{65520}, DType::kInt64) == 0x7c00);
  REQUIRE(converted<std::uint16_t>(DType::kFloat16, std::int64_t{65519}, DType::kInt64) == 0x7bff);
}

TEST_CASE("floats go to integers toward zero, within limits", "[kernels]") {
  REQUIRE(converted<std::int32_t>(DType::kInt32, -2.9F, DType::kFloat32) == -2);
  REQUIRE(converted<std::int8_t>(DType::kInt8, 1000.0, DType::kFloat64) == 127);
  REQUIRE(converted<std::uint8_t>(DType::kUInt8, -5.0, DType::kFloat64) == 0);
  REQUIRE(converted<std::int64_t>(DType::kInt64, HUGE_VALF, DType::kFloat32) ==
          std::numeric_limits<std::int64_t>::max());
  REQUIRE(converted<std::int16_t>(DType::kInt16, std::uint16_t{0x7e00}, DType::kFloat16) == 0);
  REQUIRE(converted<std::uint8_t>(DType::kBool, std::nan(""), DType::kFloat64) == 1);
  REQUIRE(converted<std::uint8_t>(DType::kBool, std::uint16_t{0x8000}, DType::kBFloat16) == 0);
  REQUIRE(converted<float>(DType::kFloat32, std::uint8_t{9}, DType::kBool) == 1.0F);
}

TEST_CASE("a cast between types of one size works in place", "[kernels]") {
  std::vector<std::uint16_t> values(1003, 0x3c00);  // 1 in fp16
  cast(values.data(), DType::kBFloat16, values.data(), DType::kFloat16, values.size());
  REQUIRE(values == std::vector<std::uint16_t>(1003, 0x3f80));
}

}  // namespace
}  // namespace roundelay::kernels
