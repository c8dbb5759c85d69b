// fp16 and bf16 conversions: all values, all midpoints, many random ones, with every instruction set.
#include <bit>
#include <random>

#include "kernels/cpu/table.h"
#include "kernels/half.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/kernels_reference.h"

namespace roundelay::kernels {
namespace {

struct Conversion {
  reference::Format format;
  CastFunction widen;
  CastFunction narrow;
};

std::vector<Conversion> all_conversions() {
  std::vector<Conversion> all;
  for (const Table& table : usable_tables()) {
    all.push_back({reference::kHalf, table.half_to_float, table.float_to_half});
    all.push_back({reference::kBFloat, table.bfloat_to_float, table.float_to_bfloat});
  }
  const auto& casts = portable_casts();
  for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
    all.push_back({half == DType::kFloat16 ? reference::kHalf : reference::kBFloat,
                   casts[index_of(DType::kFloat32)][index_of(half)],
                   casts[index_of(half)][index_of(DType::kFloat32)]});
  }
  return all;
}

bool same(std::uint16_t bits, std::uint16_t expected, reference::Format format) {
  const bool nan = std::isnan(reference::decode(expected, format));
  return nan ? std::isnan(reference::decode(bits, format)) : bits == expected;
}

std::size_t wrongly_narrowed(const Conversion& conversion, const std::vector<float>& values) {
  std::vector<std::uint16_t> halves(values.size());
  conversion.narrow(reinterpret_cast<std::byte*>(halves.data()),
                    reinterpret_cast<const std::byte*>(values.data()), values.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto expected = reference::encode(static_cast<double>(values[i]), conversion.format);
    if (!same(halves[i], expected, conversion.format)) ++wrong;
  }
  return wrong;
}

TEST_CASE("all 65536 halves widen exactly and come back", "[kernels]") {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for (const Conversion& conversion : all_conversions()) {
    std::vector<float> wide(all.size());
    std::vector<std::uint16_t> back(all.size());
    conversion.widen(reinterpret_cast<std::byte*>(wide.data()),
                     reinterpret_cast<const std::byte*>(all.data()), all.size());
    conversion.narrow(reinterpret_cast<std::byte*>(back.data()),
                      reinterpret_cast<const std::byte*>(wide.data()), all.size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double expected = reference::decode(all[i], conversion.format);
      const bool nan = std::isnan(expected);
      const bool exact = nan ? std::isnan(wide[i]) : static_cast<double>(wide[i]) == expected;
      // A NaN keeps sign and payload; only its quiet bit may change.
      const auto quiet = static_cast<std::uint16_t>(1 << (conversion.format.fraction_bits - 1));
      const bool returned = back[i] == (nan ? all[i] | quiet : all[i]);
      if (!exact || !returned || std::signbit(wide[i]) != (i >= 32768)) ++wrong;
    }
    REQUIRE(wrong == 0);
  }
}

TEST_CASE("every midpoint between neighbouring halves goes to the even one", "[kernels]") {
  for (const Conversion& conversion : all_conversions()) {
    std::vector<float> values;
    for (std::uint32_t bits = 0; bits < 65535; ++bits) {
      const double low = reference::decode(static_cast<std::uint16_t>(bits), conversion.format);
      double high = reference::decode(static_cast<std::uint16_t>(bits + 1), conversion.format);
      if (std::isinf(high)) high = std::copysign(std::ldexp(1.0, conversion.format.most_exponent + 1), high);
      if (!std::isfinite(low) || !std::isfinite(high) || std::signbit(low) != std::signbit(high)) continue;
      const auto middle = static_cast<float>((low + high) / 2);
      values.insert(values.end(),
                    {middle, std::nextafter(middle, HUGE_VALF), std::nextafter(middle, -HUGE_VALF)});
    }
    REQUIRE(values.size() > 3 * 60000);
    REQUIRE(wrongly_narrowed(conversion, values) == 0);
  }
}

TEST_CASE("random floats are rounded as the slow reference does", "[kernels]") {
  std::mt19937 random(20240607);
  std::vector<float> values = {0.0F,    -0.0F,   HUGE_VALF,  -HUGE_VALF, 1e-45F,
                               -1e-45F, 3.4e38F, 65519.996F, 65520.0F};
  for (int i = 0; i < 100000; ++i)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  // Exponents around those of fp16, which random bits seldom have.
  for (int i = 0; i < 100000; ++i) {
    const auto exponent = static_cast<std::uint32_t>(95 + random() % 50);
    values.push_back(
        std::bit_cast<float>(exponent << 23 | (static_cast<std::uint32_t>(random()) & 0x807fffffU)));
  }
  for (const Conversion& conversion : all_conversions()) REQUIRE(wrongly_narrowed(conversion, values) == 0);
}

TEST_CASE("every instruction set gives the same bits, NaNs included", "[kernels]") {
  std::mt19937 random(7);
  std::vector<std::uint32_t> floats(4099);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    floats[i] = static_cast<std::uint32_t>(random()) | (i % 2 == 0 ? 0x7f800000U : 0U);
  }
  const auto* source = reinterpret_cast<const std::byte*>(floats.data());
  for (const Table& table : usable_tables()) {
    std::vector<std::uint16_t> halves(floats.size());
    std::vector<std::uint16_t> bfloats(floats.size());
    table.float_to_half(reinterpret_cast<std::byte*>(halves.data()), source, floats.size());
    table.float_to_bfloat(reinterpret_cast<std::byte*>(bfloats.data()), source, floats.size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < floats.size(); ++i) {
      const float value = std::bit_cast<float>(floats[i]);
      if (halves[i] != float_to_half(value) || bfloats[i] != float_to_bfloat(value)) ++wrong;
    }
    INFO(table.name);
    REQUIRE(wrong == 0);
  }
}

}  // namespace
}  // namespace roundelay::kernels
