// Implements the low-rank approximations of kernels/gpu.h with the functions of kernels/.
#include <cstring>
#include <vector>

#include "kernels/low_rank.h"
#include "tests/cpp/doubles/fake_gpu.h"

namespace roundelay::doubles {
namespace {

using kernels::LowRankBlock;
using kernels::Vectors;

// Returns the memory of the numbers from the first vector's beginning to the last one's end, of which `used`
// numbers belong to each vector.
ConstByteSpan bytes_of(const Vectors& vectors, std::size_t used, DType real) {
  if (vectors.count == 0 || used == 0) return {};
  return {vectors.data, ((vectors.count - 1) * vectors.length + used) * size_of(real)};
}

std::vector<ConstByteSpan> used_by(const LowRankBlock& block, DType dtype) {
  const DType real = kernels::residual_type(dtype);
  const bool none = block.rows == 0 || block.columns == 0;
  const std::size_t count = none ? 0 : (block.rows - 1) * block.stride + block.columns;
  std::vector<ConstByteSpan> used = {{block.values, count * size_of(dtype)},
                                     bytes_of(block.left, block.rows, real),
                                     bytes_of(block.right, block.columns, real)};
  if (block.residual != nullptr) used.push_back({block.residual, count * size_of(real)});
  return used;
}

}  // namespace

Status FakeGpu::project(int device, const LowRankBlock& block, DType dtype, GpuStream stream) {
  return enqueue_on(device, stream, used_by(block, dtype), [=] { kernels::project(block, dtype); });
}

std::size_t FakeGpu::project_back_scratch(std::size_t rows, std::size_t columns, std::size_t count,
                                          DType dtype) const {
  return (rows + 7) / 8 * columns * count * size_of(kernels::residual_type(dtype));
}

Status FakeGpu::project_back(int device, const LowRankBlock& block, DType dtype, std::byte* scratch,
                             GpuStream stream) {
  const std::size_t bytes = project_back_scratch(block.rows, block.columns, block.right.count, dtype);
  std::vector<ConstByteSpan> used = used_by(block, dtype);
  used.push_back({scratch, bytes});
  return enqueue_on(device, stream, std::move(used), [=] {
    if (bytes > 0) std::memset(scratch, 0xEE, bytes);
    kernels::project_back(block, dtype);
  });
}

Status FakeGpu::expand(int device, const LowRankBlock& block, double share, DType dtype, GpuStream stream) {
  return enqueue_on(device, stream, used_by(block, dtype), [=] { kernels::expand(block, share, dtype); });
}

Status FakeGpu::orthonormalise(int device, const Vectors& vectors, DType dtype, GpuStream stream) {
  return enqueue_on(device, stream, {bytes_of(vectors, vectors.length, dtype)},
                    [=] { kernels::orthonormalise(vectors, dtype); });
}

Status FakeGpu::renew(int device, const Vectors& to, const Vectors& from, std::uint64_t seed, DType dtype,
                      GpuStream stream) {
  return enqueue_on(device, stream, {bytes_of(to, to.length, dtype), bytes_of(from, from.length, dtype)},
                    [=] { kernels::renew(to, from, seed, dtype); });
}

}  // namespace roundelay::doubles
