// Residuals, norms and the selection of chunks, against slow versions, for every instruction set.
#include <cmath>
#include <numeric>
#include <random>

#include "kernels/chunks.h"
#include "kernels/cpu/table.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/kernels_reference.h"

namespace roundelay::kernels {
namespace {

using reference::Guarded;

constexpr std::array kFloating = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};
constexpr std::size_t kCounts[] = {0, 1, 7, 64, 511, 512, 513, 1500};

// A value and a residual, whose sum all types hold exactly, except halves.
double value_at(std::size_t i) { return static_cast<double>(static_cast<int>(i * 37 % 129) - 64); }
double kept_at(std::size_t i) { return i % 3 == 0 ? 0.0 : std::ldexp(value_at(i + 5), -8); }

double round_to(DType dtype, double value) {
  std::array<std::byte, 8> bytes{};
  reference::write(dtype, bytes.data(), value);
  return reference::read(dtype, bytes.data());
}

struct Arrays {
  Arrays(DType type, std::size_t count)
      : dtype(type), kept_type(residual_type(type)), values(type, count), residual(kept_type, count, 5) {
    for (std::size_t i = 0; i < count; ++i) {
      reference::write(dtype, values.data() + i * size_of(dtype), value_at(i));
      reference::write(kept_type, residual.data() + i * size_of(kept_type), kept_at(i));
    }
  }
  double value(std::size_t i) { return reference::read(dtype, values.data() + i * size_of(dtype)); }
  double kept(std::size_t i) { return reference::read(kept_type, residual.data() + i * size_of(kept_type)); }
  [[nodiscard]] bool intact() const { return values.intact() && residual.intact(); }

  const DType dtype, kept_type;
  Guarded values, residual;
};

template <typename Test>
void for_each_case(Test test) {
  for (const Table& table : usable_tables()) {
    for (const DType dtype : kFloating) {
      for (const std::size_t count : kCounts) {
        INFO(table.name << ", " << count << " of " << name_of(dtype));
        test(table, dtype, count);
      }
    }
  }
}

TEST_CASE("a residual takes values and gives them back", "[kernels]") {
  for_each_case([](const Table& table, DType dtype, std::size_t count) {
    Arrays arrays(dtype, count);
    table.keep[index_of(dtype)](arrays.residual.data(), arrays.values.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
      REQUIRE(arrays.kept(i) == value_at(i) + kept_at(i));
      REQUIRE(arrays.value(i) == 0);
      reference::write(dtype, arrays.values.data() + i * size_of(dtype), value_at(i + 1));
    }
    table.give_back[index_of(dtype)](arrays.values.data(), arrays.residual.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
      REQUIRE(arrays.value(i) == round_to(dtype, value_at(i + 1) + value_at(i) + kept_at(i)));
      REQUIRE(arrays.kept(i) == 0);
    }
    REQUIRE(arrays.intact());
  });
}

TEST_CASE("what is taken out of a residual and what remains are the whole", "[kernels]") {
  for_each_case([](const Table& table, DType dtype, std::size_t count) {
    Arrays arrays(dtype, count);
    for (std::size_t i = 0; i < count; ++i) {
      reference::write(arrays.kept_type, arrays.residual.data() + i * size_of(arrays.kept_type),
                       value_at(i) + kept_at(i));
    }
    table.take_rounded[index_of(dtype)](arrays.values.data(), arrays.residual.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
      REQUIRE(arrays.value(i) == round_to(dtype, value_at(i) + kept_at(i)));
      REQUIRE(arrays.value(i) + arrays.kept(i) == value_at(i) + kept_at(i));
    }
    REQUIRE(arrays.intact());
  });
}

TEST_CASE("an overflow is sent and not kept", "[kernels]") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (const Table& table : usable_tables()) {
    std::array<float, 4> residual = {infinity, nan, 1e30F, -infinity};
    std::array<std::uint16_t, 4> sent{};
    table.take_rounded[index_of(DType::kFloat16)](reinterpret_cast<std::byte*>(sent.data()),
                                                  reinterpret_cast<std::byte*>(residual.data()), sent.size());
    CHECK(sent == std::array<std::uint16_t, 4>{0x7c00, 0x7e00, 0x7c00, 0xfc00});
    CHECK(residual == std::array<float, 4>{});
    residual = {infinity, nan, 1e30F, -infinity};
    std::array<float, 4> whole{};
    table.take_rounded[index_of(DType::kFloat32)](reinterpret_cast<std::byte*>(whole.data()),
                                                  reinterpret_cast<std::byte*>(residual.data()),
                                                  whole.size());
    CHECK((whole[0] == infinity && std::isnan(whole[1]) && whole[2] == 1e30F && whole[3] == -infinity));
    CHECK(residual == std::array<float, 4>{});
  }
}

TEST_CASE("a residual of zero leaves the value's sign alone", "[kernels]") {
  float residual = 0, value = -0.0F;
  keep(&residual, &value, 1, DType::kFloat32);
  CHECK((std::signbit(residual) && !std::signbit(value)));
  value = -0.0F;
  residual = 0;
  give_back(&value, &residual, 1, DType::kFloat32);
  CHECK(std::signbit(value));
}

// The order of the additions as chunk_element.h defines it.
float slow_norm(DType dtype, const std::byte* from, std::size_t count) {
  std::vector<double> sums(512);
  for (std::size_t i = 0; i < count; ++i)
    sums[i % 512] += std::fabs(reference::read(dtype, from + i * size_of(dtype)));
  for (std::size_t half = 256; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  return static_cast<float>(sums[0]);
}

TEST_CASE("a norm is the fp64 sum of magnitudes, in one order", "[kernels]") {
  for_each_case([](const Table& table, DType dtype, std::size_t count) {
    Guarded values(dtype, count);
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      std::byte* const at = values.data() + i * size_of(dtype);
      reference::write(dtype, at, std::sin(static_cast<double>(i)) * 1e3);
      sum += std::fabs(reference::read(dtype, at));
    }
    const float got = table.norm[index_of(dtype)](values.data(), count);
    REQUIRE(got == slow_norm(dtype, values.data(), count));
    REQUIRE(static_cast<double>(got) == Approx(sum).epsilon(1e-7));
  });
  const float values[] = {1.0F, -std::nanf(""), 2.0F};
  const float norm_of_nan = norm(values, 3, DType::kFloat32);
  const float quiet = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::memcmp(&norm_of_nan, &quiet, sizeof quiet) == 0);
}

std::vector<std::uint32_t> slowly_selected(std::vector<float> norms, std::size_t keep) {
  for (float& one : norms) {
    if (std::isnan(one)) one = std::numeric_limits<float>::infinity();
  }
  std::vector<std::uint32_t> order(norms.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return norms[a] > norms[b]; });
  order.resize(keep);
  std::sort(order.begin(), order.end());
  return order;
}

TEST_CASE("the largest norms are selected, ties by index", "[kernels]") {
  std::mt19937 random(1);
  for (const std::size_t count : {1, 2, 3, 100, 5000}) {
    for (const unsigned different : {1U, 2U, 100U, 1U << 31}) {
      std::vector<float> norms(count);
      for (float& one : norms) one = static_cast<float>(random() % different) * 1e-3F;
      if (count == 100) norms[37] = std::nanf("");
      for (const std::size_t keep : {std::size_t{0}, std::size_t{1}, count / 3, count - 1, count}) {
        std::vector<std::uint32_t> got(keep);
        select_largest(got.data(), keep, norms.data(), count);
        INFO(keep << " of " << count << ", " << different << " different");
        REQUIRE(got == slowly_selected(norms, keep));
      }
    }
  }
}

TEST_CASE("chunks have all elements once, and the last may be short", "[kernels]") {
  for (const std::size_t count : {0, 1, 9, 10, 11}) {
    for (const std::size_t chunk : {1, 3, 10, 20}) {
      const Chunking of{count, chunk};
      std::size_t sum = 0;
      for (std::size_t i = 0; i < of.chunks(); ++i) {
        REQUIRE((of.size(i) == chunk || i == of.chunks() - 1));
        REQUIRE(of.size(i) > 0);
        sum += of.size(i);
      }
      REQUIRE(sum == count);
      REQUIRE(of.size(of.chunks()) == 0);
    }
  }
}

}  // namespace
}  // namespace roundelay::kernels
