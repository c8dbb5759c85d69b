// copy_batch on a GPU: it must give the CPU's bits.
#include "kernels/kernels.h"
#include "tests/cpp/cuda/device.h"
#include "tests/cpp/cuda/values.h"

namespace roundelay::tests {
namespace {

using kernels::GpuCopy;
using kernels::reference::kAllDTypes;

// Full blocks of each size, and remainders.
constexpr std::array<std::size_t, 8> kCounts = {1, 2, 15, 16, 255, 4096, 5003, 70001};

struct Shifts {
  std::size_t to, from;
};
constexpr std::array kShifts = {Shifts{0, 0}, Shifts{8, 8}, Shifts{4, 12},
                                Shifts{2, 4}, Shifts{1, 0}, Shifts{3, 3}};

Bytes copied(DType to, DType from, const Bytes& source, std::size_t count, Shifts shifts, Scale scale) {
  const Stream stream;
  const DeviceBytes in(source, shifts.from);
  const DeviceBytes out(Bytes(count * size_of(to)), shifts.to);
  const GpuCopy copy{out.data(), in.data(), count, to, from};
  require(kernels().copy_batch(kDevice, {&copy, 1}, scale, stream));
  Bytes result = out.read(stream);
  REQUIRE(in.read(stream) == source);
  return result;
}

TEST_CASE("a GPU casts between any two types as the CPU does", "[gpu]") {
  for (const DType to : kAllDTypes) {
    for (const DType from : kAllDTypes) {
      for (const std::size_t count : kCounts) {
        const Bytes source = values_of(from, count, 1);
        Bytes expected(count * size_of(to));
        kernels::cast(expected.data(), to, source.data(), from, count);
        for (const Shifts shifts : kShifts) {
          INFO(name_of(from) << " to " << name_of(to) << ", " << count << " off by " << shifts.from << " and "
                             << shifts.to);
          REQUIRE(copied(to, from, source, count, shifts, {}) == expected);
        }
      }
    }
  }
}

TEST_CASE("a GPU scales every type as the CPU does", "[gpu]") {
  for (const DType dtype : kAllDTypes) {
    for (const Scale scale : kScales) {
      const std::size_t count = 5003;
      const Bytes source = values_of(dtype, count, 2);
      Bytes expected(source.size());
      kernels::scale_copy(expected.data(), source.data(), count, dtype, scale);
      INFO(name_of(dtype) << " * " << scale.factor << " / " << scale.divisor);
      for (const Shifts shifts : kShifts)
        REQUIRE(copied(dtype, dtype, source, count, shifts, scale) == expected);
    }
  }
}

TEST_CASE("all bit patterns of the halves are converted as on the CPU", "[gpu]") {
  constexpr std::size_t kCount = 65536;
  Bytes source(2 * kCount);
  for (std::size_t i = 0; i < kCount; ++i)
    kernels::reference::put(source.data() + 2 * i, static_cast<std::uint16_t>(i));
  for (const DType from : {DType::kFloat16, DType::kBFloat16}) {
    for (const DType to : kAllDTypes) {
      Bytes expected(kCount * size_of(to));
      kernels::cast(expected.data(), to, source.data(), from, kCount);
      INFO(name_of(from) << " to " << name_of(to));
      REQUIRE(copied(to, from, source, kCount, {0, 0}, {}) == expected);
    }
  }
}

TEST_CASE("a GPU copies a thousand tensors of mixed types in one call", "[gpu]") {
  const Stream stream;
  std::vector<DeviceBytes> in, out;
  std::vector<Bytes> expected;
  std::vector<GpuCopy> copies;
  for (std::size_t i = 0; i < 1000; ++i) {
    const DType dtype = kAllDTypes[i % 10];
    const std::size_t count = i * 37 % 3001;
    const Bytes source = values_of(dtype, count, static_cast<unsigned>(i));
    expected.emplace_back(source.size());
    kernels::scale_copy(expected.back().data(), source.data(), count, dtype, {0.3, 1});
    in.emplace_back(source, i % 5 == 0 ? i % 16 : 0);
    out.emplace_back(Bytes(source.size()), i % 7 == 0 ? i % 16 : 0);
    copies.push_back({out.back().data(), in.back().data(), count, dtype, dtype});
  }
  require(kernels().copy_batch(kDevice, copies, {0.3, 1}, stream));
  for (std::size_t i = 0; i < out.size(); ++i) {
    INFO(i);
    REQUIRE(out[i].read(stream) == expected[i]);
  }
}

TEST_CASE("a GPU scales in place", "[gpu]") {
  const Stream stream;
  constexpr std::size_t kCount = 100003;
  const Bytes source = values_of(DType::kFloat32, kCount, 4);
  Bytes expected(source.size());
  kernels::scale_copy(expected.data(), source.data(), kCount, DType::kFloat32, {1.0, 3});
  const DeviceBytes memory(source);
  const GpuCopy copy{memory.data(), memory.data(), kCount, DType::kFloat32, DType::kFloat32};
  require(kernels().copy_batch(kDevice, {&copy, 1}, {1.0, 3}, stream));
  REQUIRE(memory.read(stream) == expected);
}

}  // namespace
}  // namespace roundelay::tests
