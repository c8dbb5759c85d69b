// accumulate() and mark_overflow() against slow versions, for every instruction set.
#include <cmath>
#include <random>

#include "kernels/chunks.h"
#include "kernels/cpu/table.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/kernels_reference.h"

namespace roundelay::kernels {
namespace {

using reference::Guarded;

constexpr std::array kFloating = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};
constexpr std::size_t kCounts[] = {0, 1, 7, 511, 512, 513, 1500};
constexpr LocalMomentum kMomenta[] = {{0, false}, {0.9, false}, {0.9, true}};

double round_to(DType dtype, double value) {
  return dtype == DType::kFloat64 ? value : static_cast<double>(static_cast<float>(value));
}

struct Arrays {
  Arrays(DType type, std::size_t count, std::mt19937& random)
      : dtype(type),
        kept_type(residual_type(type)),
        values(type, count),
        residual(kept_type, count, 5),
        momentum(kept_type, count, 3) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto number = [&] { return std::ldexp(static_cast<double>(random()) - 2e9, -28); };
      reference::write(dtype, values.data() + i * size_of(dtype), number());
      reference::write(kept_type, residual.data() + i * size_of(kept_type), number());
      reference::write(kept_type, momentum.data() + i * size_of(kept_type), number());
    }
  }
  double value(std::size_t i) { return reference::read(dtype, values.data() + i * size_of(dtype)); }
  double kept(Guarded& from, std::size_t i) {
    return reference::read(kept_type, from.data() + i * size_of(kept_type));
  }
  void set(Guarded& to, DType type, std::size_t i, double to_value) {
    reference::write(type, to.data() + i * size_of(type), to_value);
  }
  ResidualState as_state(LocalMomentum how) {
    return {residual.data(), how.factor != 0 ? momentum.data() : nullptr, how};
  }
  [[nodiscard]] bool intact() const { return values.intact() && residual.intact() && momentum.intact(); }

  const DType dtype, kept_type;
  Guarded values, residual, momentum;
};

// One element's step, with every operation rounded to the residual's type.
void slow_step(DType kept_type, LocalMomentum how, double value, double& residual, double& momentum) {
  const auto round = [&](double x) { return round_to(kept_type, x); };
  const double factor = round(how.factor);
  if (how.factor == 0) {
    residual = round(residual + value);
  } else if (how.nesterov) {
    momentum = round(factor * round(momentum + value));
    residual = round(round(residual + momentum) + value);
  } else {
    momentum = round(round(factor * momentum) + value);
    residual = round(residual + momentum);
  }
}

template <typename Test>
void for_each_case(Test test) {
  for (const Table& table : usable_tables()) {
    for (const DType dtype : kFloating) {
      for (const LocalMomentum how : kMomenta) {
        for (const std::size_t count : kCounts) {
          INFO(table.name << ", " << count << " of " << name_of(dtype) << ", momentum " << how.factor
                          << (how.nesterov ? ", Nesterov's" : ""));
          test(table, dtype, how, count);
        }
      }
    }
  }
}

TEST_CASE("accumulate adds, clears and computes the norm that norm() would", "[kernels][csc]") {
  std::mt19937 random(1);
  for_each_case([&](const Table& table, DType dtype, LocalMomentum how, std::size_t count) {
    Arrays arrays(dtype, count, random);
    std::vector<double> residual(count), momentum(count);
    for (std::size_t i = 0; i < count; ++i) {
      residual[i] = arrays.kept(arrays.residual, i);
      momentum[i] = arrays.kept(arrays.momentum, i);
      slow_step(arrays.kept_type, how, arrays.value(i), residual[i], momentum[i]);
    }
    const float got = table.accumulate[index_of(dtype)](arrays.as_state(how), arrays.values.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
      REQUIRE(arrays.kept(arrays.residual, i) == residual[i]);
      REQUIRE(arrays.kept(arrays.momentum, i) == momentum[i]);
      REQUIRE(arrays.value(i) == 0);
    }
    const float expected = norm(arrays.residual.data(), count, arrays.kept_type);
    REQUIRE(got == std::max(expected, kLeastNorm));
    REQUIRE(arrays.intact());
  });
}

TEST_CASE("what is not finite counts in the norm and is not kept", "[kernels][csc]") {
  std::mt19937 random(2);
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for_each_case([&](const Table& table, DType dtype, LocalMomentum how, std::size_t count) {
    for (const double bad : {infinity, -infinity, nan}) {
      if (count == 0) continue;
      Arrays arrays(dtype, count, random);
      const std::size_t at = random() % count;
      arrays.set(arrays.values, dtype, at, bad);
      const float got = table.accumulate[index_of(dtype)](arrays.as_state(how), arrays.values.data(), count);
      REQUIRE_FALSE(std::isfinite(got));
      REQUIRE(std::isnan(got) == std::isnan(bad));
      REQUIRE(arrays.kept(arrays.residual, at) == 0);
      if (how.factor != 0) REQUIRE(arrays.kept(arrays.momentum, at) == 0);
      const float next = table.accumulate[index_of(dtype)](arrays.as_state(how), arrays.values.data(), count);
      REQUIRE(std::isfinite(next));
    }
  });
}

TEST_CASE("a chunk of zeros has the least norm, and finite numbers have a finite one", "[kernels][csc]") {
  std::vector<float> residual(700), values(700);
  const ResidualState kept{reinterpret_cast<std::byte*>(residual.data())};
  CHECK(accumulate(kept, values.data(), values.size(), DType::kFloat32) == kLeastNorm);
  for (const Table& table : usable_tables()) {
    std::fill(values.begin(), values.end(), 3e38F);
    std::fill(residual.begin(), residual.end(), 0.0F);
    CHECK(table.accumulate[index_of(DType::kFloat32)](kept, reinterpret_cast<std::byte*>(values.data()),
                                                      values.size()) == kMostNorm);
  }
  CHECK(std::isfinite(65536.0F * kMostNorm));
  CHECK(residual == std::vector<float>(700, 3e38F));  // the elements are finite
}

TEST_CASE("an overflow is marked by a NaN, and nothing else changes", "[kernels][csc]") {
  for (const DType dtype : kFloating) {
    Guarded value(dtype, 1);
    for (const float one : {1.0F, std::numeric_limits<float>::infinity(), std::nanf("")}) {
      reference::write(dtype, value.data(), 5);
      const float norms[] = {0, one, 2};
      mark_overflow(value.data(), dtype, norms, 3);
      const double after = reference::read(dtype, value.data());
      REQUIRE(std::isnan(after) == !std::isfinite(one));
      REQUIRE((std::isnan(after) || after == 5));
      REQUIRE(value.intact());
    }
  }
}

}  // namespace
}  // namespace roundelay::kernels
