// Residuals, chunks and norms on a GPU: the CPU's bits.
#include <array>
#include <cstring>

#include "kernels/chunks.h"
#include "tests/cpp/cuda/device.h"
#include "tests/cpp/cuda/values.h"

namespace roundelay::tests {
namespace {

using kernels::Chunking;

constexpr std::array kFloating = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};
constexpr std::size_t kCount = 100003;

template <typename T>
T* as(const DeviceBytes& memory) {
  return reinterpret_cast<T*>(memory.data());
}

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  const auto* const data = reinterpret_cast<const std::byte*>(values.data());
  return {data, data + values.size() * sizeof(T)};
}

TEST_CASE("a GPU keeps and gives back the CPU's residuals", "[gpu]") {
  for (const DType dtype : kFloating) {
    const Stream stream;
    Bytes values = values_of(dtype, kCount, 31);
    Bytes residual = values_of(kernels::residual_type(dtype), kCount, 32);
    const DeviceBytes on_values(values), on_residual(residual);
    INFO(name_of(dtype));
    require(kernels().keep(kDevice, on_residual.data(), on_values.data(), kCount, dtype, stream));
    kernels::keep(residual.data(), values.data(), kCount, dtype);
    REQUIRE(on_residual.read(stream) == residual);
    REQUIRE(on_values.read(stream) == values);
    require(kernels().give_back(kDevice, on_values.data(), on_residual.data(), kCount, dtype, stream));
    kernels::give_back(values.data(), residual.data(), kCount, dtype);
    REQUIRE(on_residual.read(stream) == residual);
    REQUIRE(on_values.read(stream) == values);
  }
}

TEST_CASE("a GPU's norms are the CPU's", "[gpu]") {
  for (const DType dtype : kFloating) {
    const Bytes source = values_of(dtype, kCount, 33);
    for (const std::size_t chunk : {std::size_t{1}, std::size_t{1000}, std::size_t{16384}, kCount}) {
      const Stream stream;
      const Chunking of{kCount, chunk};
      const DeviceBytes from(source, size_of(dtype)), norms(Bytes(of.chunks() * sizeof(float)));
      require(kernels().norms(kDevice, as<float>(norms), from.data(), of, dtype, stream));
      std::vector<float> expected;
      for (std::size_t i = 0; i < of.chunks(); ++i)
        expected.push_back(kernels::norm(source.data() + i * chunk * size_of(dtype), of.size(i), dtype));
      INFO(name_of(dtype) << " in chunks of " << chunk);
      REQUIRE(norms.read(stream) == bytes_of(expected));
    }
  }
}

TEST_CASE("a GPU selects, gathers and scatters as the CPU does", "[gpu]") {
  constexpr Chunking kOf{kCount, 7};
  std::mt19937 random(1);
  std::vector<float> norms(kOf.chunks());
  for (float& one : norms) one = static_cast<float>(random() % 1000);
  for (const std::size_t keep : {std::size_t{0}, std::size_t{1}, norms.size() / 10, norms.size()}) {
    const Stream stream;
    const DeviceBytes on_norms(bytes_of(norms)), on_indices(Bytes(keep * sizeof(std::uint32_t)));
    require(kernels().select(kDevice, as<std::uint32_t>(on_indices), keep, as<float>(on_norms), norms.size(),
                             stream));
    std::vector<std::uint32_t> indices(keep);
    kernels::select_largest(indices.data(), keep, norms.data(), norms.size());
    REQUIRE(on_indices.read(stream) == bytes_of(indices));

    const std::span<const std::uint32_t> chosen(as<std::uint32_t>(on_indices), keep);
    const Bytes source = values_of(DType::kFloat32, kCount, 34);
    const DeviceBytes residual(source), message(Bytes(keep * kOf.chunk * 4)), back(Bytes(kCount * 4));
    require(kernels().gather(kDevice, message.data(), residual.data(), kOf, chosen, DType::kFloat32, stream));
    require(kernels().scatter(kDevice, back.data(), message.data(), kOf, chosen, DType::kFloat32, stream));
    Bytes left = source, sent(kCount * 4);
    for (const std::uint32_t i : indices) {
      const std::size_t at = i * kOf.chunk * 4;
      kernels::take(sent.data() + at, left.data() + at, kOf.size(i), DType::kFloat32);
    }
    REQUIRE(residual.read(stream) == left);
    REQUIRE(back.read(stream) == sent);
  }
}

TEST_CASE("turns on a GPU come one after the other", "[gpu]") {
  const Stream stream;
  const DeviceBytes turn(bytes_of(std::vector<std::uint64_t>{0}));
  const DeviceBytes indices(Bytes(1000 * sizeof(std::uint32_t)));
  for (std::uint64_t step = 0; step < 5; ++step) {
    require(
        kernels().next_turn(kDevice, as<std::uint32_t>(indices), 1000, 3, as<std::uint64_t>(turn), stream));
    std::vector<std::uint32_t> expected;
    for (std::uint64_t j = 0; j < 1000; ++j) expected.push_back(kernels::turn_index(step, 3, j));
    REQUIRE(indices.read(stream) == bytes_of(expected));
  }
  REQUIRE(turn.read(stream) == bytes_of(std::vector<std::uint64_t>{5}));
}

}  // namespace
}  // namespace roundelay::tests
