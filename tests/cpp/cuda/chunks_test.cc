// Residuals, chunks and norms on a GPU: the CPU's bits.
#include <array>
#include <cstring>
#include <limits>

#include "kernels/chunks.h"
#include "kernels/kernels.h"
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
    require(kernels().scatter(kDevice, back.data(), DType::kFloat32, message.data(), DType::kFloat32, kOf,
                              chosen, stream));
    Bytes left = source, sent(kCount * 4);
    for (const std::uint32_t i : indices) {
      const std::size_t at = i * kOf.chunk * 4;
      kernels::take_rounded(sent.data() + at, left.data() + at, kOf.size(i), DType::kFloat32);
    }
    REQUIRE(residual.read(stream) == left);
    REQUIRE(back.read(stream) == sent);
  }
}

TEST_CASE("a GPU accumulates as the CPU does", "[gpu]") {
  for (const DType dtype : kFloating) {
    for (const std::size_t chunk : {std::size_t{1000}, std::size_t{32768}}) {
      for (const kernels::LocalMomentum how : {kernels::LocalMomentum{}, {0.9, false}, {0.9, true}}) {
        const Stream stream;
        const Chunking of{kCount, chunk};
        const DType kept_type = kernels::residual_type(dtype);
        Bytes values = values_of(dtype, kCount, 35), residual = values_of(kept_type, kCount, 36),
              momentum = values_of(kept_type, kCount, 37);
        const DeviceBytes on_values(values), on_residual(residual), on_momentum(momentum),
            norms(Bytes(of.chunks() * sizeof(float)));
        const auto kept_in = [&](std::byte* first, std::byte* second) {
          return kernels::ResidualState{first, how.factor != 0 ? second : nullptr, how};
        };
        require(kernels().accumulate(kDevice, as<float>(norms),
                                     kept_in(on_residual.data(), on_momentum.data()), on_values.data(), of,
                                     dtype, stream));
        std::vector<float> expected;
        for (std::size_t i = 0; i < of.chunks(); ++i) {
          expected.push_back(
              kernels::accumulate(kernels::chunk_of(kept_in(residual.data(), momentum.data()), of, i, dtype),
                                  values.data() + i * chunk * size_of(dtype), of.size(i), dtype));
        }
        INFO(name_of(dtype) << " in chunks of " << chunk << ", momentum " << how.factor);
        REQUIRE(norms.read(stream) == bytes_of(expected));
        REQUIRE(on_values.read(stream) == values);
        REQUIRE(on_residual.read(stream) == residual);
        REQUIRE(on_momentum.read(stream) == momentum);
      }
    }
  }
}

TEST_CASE("a GPU casts chunks to their places, clears chunks, and marks overflows", "[gpu]") {
  constexpr Chunking kOf{kCount, 1000};
  const Stream stream;
  const DeviceBytes indices(Bytes(20 * sizeof(std::uint32_t))), wide(Bytes(kCount * 4));
  require(kernels().number(kDevice, as<std::uint32_t>(indices), 20, {5, 5}, stream));
  std::vector<std::uint32_t> expected;
  for (std::uint32_t j = 0; j < 20; ++j) expected.push_back(5 + 5 * j);
  REQUIRE(indices.read(stream) == bytes_of(expected));
  const std::span<const std::uint32_t> chosen(as<std::uint32_t>(indices), 20);
  for (const DType from : {DType::kFloat16, DType::kBFloat16}) {
    const Bytes source = values_of(from, 20 * kOf.chunk, 38);
    const DeviceBytes message(source);
    require(
        kernels().scatter(kDevice, wide.data(), DType::kFloat32, message.data(), from, kOf, chosen, stream));
    Bytes scattered(kCount * 4);
    for (std::size_t j = 0; j < expected.size(); ++j) {
      kernels::cast(scattered.data() + expected[j] * kOf.chunk * 4, DType::kFloat32,
                    source.data() + j * kOf.chunk * 2, from, kOf.size(expected[j]));
    }
    REQUIRE(wide.read(stream) == scattered);
  }
  require(kernels().clear_chunks(kDevice, wide.data(), kOf, chosen, DType::kFloat32, stream));
  REQUIRE(wide.read(stream) == Bytes(kCount * 4));
  const DeviceBytes norms(bytes_of(std::vector<float>{1, 2, std::numeric_limits<float>::infinity()}));
  require(kernels().mark_overflow(kDevice, wide.data(), DType::kFloat32, as<float>(norms), 2, stream));
  REQUIRE(wide.read(stream) == Bytes(kCount * 4));
  require(kernels().mark_overflow(kDevice, wide.data(), DType::kFloat32, as<float>(norms), 3, stream));
  float first = 0;
  const Bytes marked = wide.read(stream);
  std::memcpy(&first, marked.data(), sizeof first);
  REQUIRE(first != first);
}

}  // namespace
}  // namespace roundelay::tests
