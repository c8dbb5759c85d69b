// Messages of pairs on a GPU: the CPU's bits.
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/pairs.h"
#include "tests/cpp/cuda/device.h"
#include "tests/cpp/cuda/values.h"

namespace roundelay::tests {
namespace {

using kernels::IndexForm;
using kernels::Pairs;

constexpr std::size_t kElements = 3000001, kEach = 17;

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  const auto* const data = reinterpret_cast<const std::byte*>(values.data());
  return {data, data + values.size() * sizeof(T)};
}

// A message that begins with its mark of an overflow.
struct Layout {
  [[nodiscard]] std::size_t bytes() const { return indices_at + form.bytes(); }
  [[nodiscard]] Pairs in(std::byte* message) const {
    return kernels::pairs_at(reinterpret_cast<float*>(message), message + 8, message + indices_at, type,
                             form);
  }
  DType type;
  IndexForm form;
  std::size_t indices_at = (8 + form.count * size_of(type) + 3) / 4 * 4;
};

void check(DType type, bool is_short, bool moves, Scale scale) {
  INFO(name_of(type) << (is_short ? ", short" : "") << (moves ? ", momentum" : ""));
  std::vector<std::int64_t> indices;
  for (std::size_t i = 3; i < kElements; i += kEach) indices.push_back(static_cast<std::int64_t>(i));
  const Layout layout{type, {kElements, indices.size(), is_short}};
  const DType wide = kernels::residual_type(type);
  Bytes residual = values_of(wide, kElements, 1), momentum = values_of(wide, kElements, 2),
        sums = values_of(wide, kElements, 3), message(layout.bytes(), std::byte{});
  const Stream stream;
  const DeviceBytes on_residual(residual), on_momentum(momentum), on_sums(sums), on_message(message),
      on_indices(bytes_of(indices));
  const std::span places(reinterpret_cast<const std::int64_t*>(on_indices.data()), indices.size());
  require(kernels().take_pairs(kDevice, layout.in(on_message.data()),
                               {on_residual.data(), moves ? on_momentum.data() : nullptr}, places, stream));
  require(kernels().add_pairs(kDevice, on_sums.data(), layout.in(on_message.data()), scale, stream));
  kernels::take_pairs(layout.in(message.data()), {residual.data(), moves ? momentum.data() : nullptr},
                      indices);
  REQUIRE(kernels::add_pairs(sums.data(), layout.in(message.data()), scale));
  REQUIRE(on_message.read(stream) == message);
  REQUIRE(on_residual.read(stream) == residual);
  REQUIRE(on_momentum.read(stream) == momentum);
  REQUIRE(on_sums.read(stream) == sums);
}

TEST_CASE("a GPU's messages of pairs have the CPU's bits", "[gpu]") {
  for (const DType type : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    check(type, false, true, {});
    check(type, true, false, {0.1, 1});
    check(type, true, true, {1.0, 3});
  }
}

TEST_CASE("a GPU marks an index beyond the array", "[gpu]") {
  const Layout layout{DType::kFloat32, {10, 1, false}};
  Bytes message(layout.bytes(), std::byte{});
  *layout.in(message.data()).words = 10;
  const Stream stream;
  const DeviceBytes on_message(message), sums(Bytes(10 * sizeof(float)));
  require(kernels().add_pairs(kDevice, sums.data(), layout.in(on_message.data()), {}, stream));
  float mark = 0;
  std::memcpy(&mark, on_message.read(stream).data(), sizeof mark);
  CHECK(std::isnan(mark));
  CHECK(sums.read(stream) == Bytes(10 * sizeof(float)));
}

}  // namespace
}  // namespace roundelay::tests
