// reduce_parts on a GPU.
#include "kernels/kernels.h"
#include "tests/cpp/cuda/device.h"
#include "tests/cpp/cuda/values.h"

namespace roundelay::tests {
namespace {

using kernels::reference::kAllDTypes;

void check_reduction(DType dtype, ReduceOp op, std::size_t parts, std::size_t count, std::size_t shift,
                     Scale prescale, Scale scale, bool in_place) {
  const Stream stream;
  std::vector<Bytes> sources;
  std::vector<const void*> host;
  std::vector<DeviceBytes> memory;
  std::vector<const std::byte*> device;
  for (std::size_t p = 0; p < parts; ++p)
    sources.push_back(values_of(dtype, count, static_cast<unsigned>(p)));
  for (const Bytes& source : sources) {
    host.push_back(source.data());
    memory.emplace_back(source, shift);
    device.push_back(memory.back().data());
  }
  memory.emplace_back(Bytes(count * size_of(dtype)), shift);
  const DeviceBytes& to = memory[in_place ? 0 : parts];
  Bytes expected(count * size_of(dtype));
  kernels::reduce_parts(expected.data(), host, count, dtype, op, prescale, scale);
  require(kernels().reduce_parts(kDevice, to.data(), device, count, dtype, op, prescale, scale, stream));
  INFO(name_of(dtype) << " " << name_of(op) << ", " << parts << " parts of " << count << " off by " << shift
                      << ", prescale " << prescale.factor << " / " << prescale.divisor << ", scale "
                      << scale.factor << " / " << scale.divisor);
  REQUIRE(to.read(stream) == expected);
}

TEST_CASE("a GPU reduces parts to the CPU's bits", "[gpu]") {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kernels::reference::kAllOps) {
      for (const std::size_t parts : {1, 2, 3, 8}) {
        check_reduction(dtype, op, parts, 70001, 0, {}, {}, false);
        check_reduction(dtype, op, parts, 70001, 0, {}, {1.0, 3}, true);
        check_reduction(dtype, op, parts, 5003, 8, {0.5, 1}, {1.0, 4}, false);
        check_reduction(dtype, op, parts, 5003, 1, {0.1, 1}, {0.7, 1}, true);
      }
    }
  }
}

TEST_CASE("a GPU's reduction scales as the CPU's does", "[gpu]") {
  for (const DType dtype : kAllDTypes) {
    for (const Scale scale : kScales) {
      check_reduction(dtype, ReduceOp::kSum, 3, 5003, 0, {}, scale, false);
      check_reduction(dtype, ReduceOp::kSum, 3, 5003, 0, scale, {1.0, 3}, false);
      check_reduction(dtype, ReduceOp::kMax, 3, 5003, 0, scale, scale, false);
    }
  }
}

TEST_CASE("a GPU reduces 256 parts, and says so of more", "[gpu]") {
  check_reduction(DType::kFloat32, ReduceOp::kSum, 256, 1003, 0, {}, {1.0, 256}, false);
  const std::vector<const std::byte*> many(257);
  REQUIRE(!kernels()
               .reduce_parts(kDevice, nullptr, many, 1, DType::kFloat32, ReduceOp::kSum, {}, {}, nullptr)
               .ok());
}

}  // namespace
}  // namespace roundelay::tests
