// The selection of the largest magnitudes on a GPU: the CPU's values and indices.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/top_k.h"
#include "tests/cpp/cuda/device.h"

namespace roundelay::tests {
namespace {

using kernels::Selection;
using kernels::TopKRule;

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  const auto* const data = reinterpret_cast<const std::byte*>(values.data());
  return {data, data + values.size() * sizeof(T)};
}

void check_selection(const std::vector<float>& values, std::size_t k, const TopKRule& rule) {
  INFO(k << " of " << values.size() << ", " << rule.samplings << " samplings");
  const Stream stream;
  const std::size_t bytes = kernels().top_k_scratch(values.size());
  const DeviceBytes from(bytes_of(values)), chosen(Bytes(k * sizeof(float))),
      indices(Bytes(k * sizeof(std::int64_t))), scratch(Bytes(bytes, std::byte{0x5a}));
  const std::span to(reinterpret_cast<float*>(chosen.data()), k);
  const std::span places(reinterpret_cast<std::int64_t*>(indices.data()), k);
  require(kernels().top_k(kDevice, {reinterpret_cast<const float*>(from.data()), values.size()}, rule, to,
                          places, scratch.data(), stream));
  std::vector<float> expected(k);
  std::vector<std::int64_t> expected_places(k);
  kernels::top_k(values, rule, expected, expected_places);
  REQUIRE(chosen.read(stream) == bytes_of(expected));
  REQUIRE(indices.read(stream) == bytes_of(expected_places));
  (void)scratch.read(stream);  // its guards
}

TEST_CASE("a GPU selects the CPU's largest magnitudes", "[gpu]") {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const std::size_t count : {std::size_t{1}, std::size_t{4097}, std::size_t{3000001}}) {
    std::vector<float> values(count), few(count), overflow(count);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = normal(random);
      few[i] = std::round(values[i]);
      overflow[i] = i % 997 == 3 ? std::numeric_limits<float>::infinity() : values[i];
    }
    for (const auto& of : {values, few, overflow, std::vector<float>(count, 0.0F)}) {
      for (const std::size_t k : {std::size_t{0}, std::size_t{1}, count / 100, count / 2, count}) {
        check_selection(of, k, {Selection::kRadix});
        check_selection(of, k, {Selection::kMsTopK, 20, k});
      }
    }
  }
}

TEST_CASE("a GPU refuses more values than there are", "[gpu]") {
  std::array<float, 2> chosen{};
  std::array<std::int64_t, 2> indices{};
  const float value = 1;
  CHECK(kernels().top_k(kDevice, {&value, 1}, {}, chosen, indices, nullptr, nullptr).message() ==
        "cannot select 2 of 1 values");
}

}  // namespace
}  // namespace roundelay::tests
