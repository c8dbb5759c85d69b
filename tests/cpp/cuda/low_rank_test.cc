// Low-rank approximations on a GPU: the CPU's bits.
#include <array>

#include "kernels/low_rank.h"
#include "tests/cpp/cuda/device.h"
#include "tests/cpp/cuda/values.h"

namespace roundelay::tests {
namespace {

using kernels::LowRankBlock;
using kernels::Vectors;

constexpr std::array kFloating = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};

Bytes numbers(DType dtype, std::size_t count, unsigned seed) {
  Bytes made(count * size_of(dtype));
  draw_numbers(dtype, made.data(), count, seed);
  return made;
}

void check_block(DType dtype, std::size_t rows, std::size_t columns, std::size_t count) {
  INFO(rows << " x " << columns << " of " << name_of(dtype) << ", " << count);
  const DType real = kernels::residual_type(dtype);
  const Stream stream;
  Bytes values = numbers(dtype, rows * columns, 1), residual = numbers(real, rows * columns, 2),
        left = numbers(real, rows * count, 3), right = numbers(real, columns * count, 4);
  const DeviceBytes on_values(values), on_residual(residual), on_left(left), on_right(right),
      scratch(Bytes(kernels().project_back_scratch(rows, columns, count, dtype)));
  const auto block_of = [&](std::byte* of_values, std::byte* of_residual, std::byte* of_left,
                            std::byte* of_right) {
    return LowRankBlock{of_values,
                        of_residual,
                        3,
                        rows,
                        columns,
                        columns,
                        {of_left, rows, count},
                        {of_right, columns, count}};
  };
  const LowRankBlock host = block_of(values.data(), residual.data(), left.data(), right.data());
  const LowRankBlock device = block_of(on_values.data(), on_residual.data(), on_left.data(), on_right.data());
  require(kernels().project(kDevice, device, dtype, stream));
  kernels::project(host, dtype);
  REQUIRE(on_left.read(stream) == left);
  require(kernels().orthonormalise(kDevice, device.left, real, stream));
  kernels::orthonormalise(host.left, real);
  REQUIRE(on_left.read(stream) == left);
  require(kernels().project_back(kDevice, device, dtype, scratch.data(), stream));
  kernels::project_back(host, dtype);
  REQUIRE(on_right.read(stream) == right);
  require(kernels().expand(kDevice, device, 0.3, dtype, stream));
  kernels::expand(host, 0.3, dtype);
  REQUIRE(on_values.read(stream) == values);
  REQUIRE(on_residual.read(stream) == residual);
  require(kernels().renew(kDevice, device.right, device.right, 5, real, stream));
  kernels::renew(host.right, host.right, 5, real);
  REQUIRE(on_right.read(stream) == right);
}

TEST_CASE("a GPU approximates matrices with the CPU's bits", "[gpu]") {
  for (const DType dtype : kFloating) {
    for (const std::size_t count : {1, 2, 3, 4, 5}) {
      check_block(dtype, 300, 1000, count);
      check_block(dtype, 1000, 27, count);
      check_block(dtype, 7, 40000, count);
    }
  }
}

}  // namespace
}  // namespace roundelay::tests
