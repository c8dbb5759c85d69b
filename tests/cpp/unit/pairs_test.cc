// Messages of pairs, against slow versions.
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/pairs.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/kernels_reference.h"

namespace roundelay::kernels {
namespace {

using Indices = std::vector<std::int64_t>;

constexpr std::array kTypes = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};

// A message in memory of its own.
struct Message {
  Message(DType type, IndexForm form)
      : values(form.count + 1, -7.0), indices(form.bytes() / sizeof(std::uint32_t) + 1, 0xabababab) {
    pairs = pairs_at(&overflow, reinterpret_cast<std::byte*>(values.data()),
                     reinterpret_cast<std::byte*>(indices.data()), type, form);
  }
  float overflow = 0;
  std::vector<double> values;
  std::vector<std::uint32_t> indices;
  Pairs pairs;
};

Indices some_indices(std::size_t elements, unsigned one_in, std::mt19937& random) {
  Indices indices;
  for (std::size_t i = 0; i < elements; ++i)
    if (random() % one_in == 0 || i + 1 == elements) indices.push_back(static_cast<std::int64_t>(i));
  return indices;
}

template <typename Real>
void check_round_trip(DType type, const Indices& indices, IndexForm form, std::mt19937& random) {
  Message message(type, form);
  std::vector<Real> residual(form.elements), momentum(form.elements, 3), sums(form.elements);
  for (Real& one : residual) one = static_cast<Real>(static_cast<int>(random() % 4001) - 2000) / 16;
  for (Real& one : sums) one = static_cast<Real>(random() % 100);
  const std::vector<Real> before = residual, sums_before = sums;
  take_pairs(message.pairs,
             {reinterpret_cast<std::byte*>(residual.data()), reinterpret_cast<std::byte*>(momentum.data())},
             indices);
  REQUIRE(add_pairs(sums.data(), message.pairs, {0.5, 1}));
  std::vector<bool> taken(form.elements);
  for (const std::int64_t index : indices) taken[static_cast<std::size_t>(index)] = true;
  bool rounded = false;
  for (std::size_t i = 0; i < form.elements; ++i) {
    if (!taken[i]) {
      REQUIRE((residual[i] == before[i] && momentum[i] == 3 && sums[i] == sums_before[i]));
      continue;
    }
    std::array<std::byte, 8> stored{};
    reference::write(type, stored.data(), static_cast<double>(before[i]));
    const auto sent = static_cast<Real>(reference::read(type, stored.data()));
    REQUIRE((residual[i] == before[i] - sent && momentum[i] == 0));
    REQUIRE(sums[i] == sums_before[i] + sent / 2);
    rounded = rounded || sent != before[i];
  }
  if (type == DType::kBFloat16 && indices.size() > 100) CHECK(rounded);
}

TEST_CASE("pairs are taken out of a residual, and added at their places", "[kernels][pairs]") {
  std::mt19937 random(8);
  for (const std::size_t elements : {1UL, 65535UL, 65536UL, 65537UL, 300000UL}) {
    for (const unsigned one_in : {1U, 50U, 100000U}) {
      const Indices indices = some_indices(elements, one_in, random);
      for (const bool is_short : {false, true}) {
        for (const DType type : kTypes) {
          INFO(indices.size() << " of " << elements << ", " << name_of(type) << (is_short ? ", short" : ""));
          const IndexForm form{elements, indices.size(), is_short};
          if (type == DType::kFloat64) {
            check_round_trip<double>(type, indices, form, random);
          } else {
            check_round_trip<float>(type, indices, form, random);
          }
        }
      }
    }
  }
}

TEST_CASE("no pairs are a message, too", "[kernels][pairs]") {
  for (const bool is_short : {false, true}) {
    Message message(DType::kFloat32, {70000, 0, is_short});
    std::vector<float> residual(70000, 1.0F), sums(70000);
    take_pairs(message.pairs, {reinterpret_cast<std::byte*>(residual.data()), nullptr}, {});
    REQUIRE(add_pairs(sums.data(), message.pairs, {}));
    REQUIRE(sums == std::vector<float>(70000));
    REQUIRE(residual == std::vector<float>(70000, 1.0F));
  }
}

TEST_CASE("bytes that are no indices are found, and nothing is written outside", "[kernels][pairs]") {
  std::mt19937 random(9);
  constexpr std::size_t kElements = 200000;
  const Indices indices = some_indices(kElements, 50, random);
  for (const bool is_short : {false, true}) {
    for (int round = 0; round < 200; ++round) {
      Message message(DType::kFloat32, {kElements, indices.size(), is_short});
      std::vector<float> residual(kElements, 1.0F);
      reference::Guarded sums(DType::kFloat32, kElements);
      for (std::size_t i = 0; i < kElements; ++i) reference::write(DType::kFloat32, sums.data() + 4 * i, 0.0);
      take_pairs(message.pairs, {reinterpret_cast<std::byte*>(residual.data()), nullptr}, indices);
      const auto at = static_cast<std::size_t>(random()) % message.pairs.form.bytes();
      const auto bit = static_cast<std::byte>(1U << (random() % 8));
      reinterpret_cast<std::byte*>(message.pairs.words)[at] ^= bit;
      const bool known = is_short && at < message.pairs.form.blocks() * sizeof(std::uint32_t);
      const bool fits = add_pairs(sums.data(), message.pairs, {});
      REQUIRE(sums.intact());
      if (known && at / 4 + 1 == message.pairs.form.blocks()) REQUIRE_FALSE(fits);
    }
    Message message(DType::kFloat32, {kElements, indices.size(), is_short});
    std::vector<float> residual(kElements, 1.0F), sums(kElements);
    take_pairs(message.pairs, {reinterpret_cast<std::byte*>(residual.data()), nullptr}, indices);
    message.pairs.form.elements = kElements - 1;  // the last index is beyond
    CHECK_FALSE(add_pairs(sums.data(), message.pairs, {}));
  }
}

TEST_CASE("an infinity is sent once, and sums of NaN are the one quiet NaN", "[kernels][pairs]") {
  Message message(DType::kFloat16, {3, 3, false});
  std::vector<float> residual = {1e6F, 2.0F, 3.0F}, sums = {-std::numeric_limits<float>::infinity(), 0, 0};
  const Indices indices = {0, 1, 2};
  take_pairs(message.pairs, {reinterpret_cast<std::byte*>(residual.data()), nullptr}, indices);
  CHECK(residual == std::vector<float>(3));
  REQUIRE(add_pairs(sums.data(), message.pairs, {}));
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::memcmp(sums.data(), &kNan, sizeof kNan) == 0);
  CHECK((sums[1] == 2 && sums[2] == 3));
}

}  // namespace
}  // namespace roundelay::kernels
