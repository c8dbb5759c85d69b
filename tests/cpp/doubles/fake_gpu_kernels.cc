// Implements kernels/gpu.h with the functions of kernels/kernels.h.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/kernels.h"
#include "tests/cpp/doubles/fake_gpu.h"

namespace roundelay::doubles {
namespace {

using kernels::GpuCopy;

constexpr std::size_t kBlock = 512;  // elements

ConstByteSpan source_of(const GpuCopy& item) { return {item.from, item.count * size_of(item.from_type)}; }
ConstByteSpan target_of(const GpuCopy& item) { return {item.to, item.count * size_of(item.to_type)}; }

// Does not round between the two: halves and fp32 are scaled in fp32, all others in fp64.
template <typename Real, DType kReal>
void scale_and_cast(const GpuCopy& item, Scale scale) {
  Real values[kBlock];
  for (std::size_t begin = 0; begin < item.count; begin += kBlock) {
    const std::size_t count = std::min(kBlock, item.count - begin);
    kernels::cast(values, kReal, item.from + begin * size_of(item.from_type), item.from_type, count);
    kernels::scale_copy(values, values, count, kReal, scale);
    kernels::cast(item.to + begin * size_of(item.to_type), item.to_type, values, kReal, count);
  }
}

void copy_one(const GpuCopy& item, Scale scale) {
  if (item.count == 0) return;
  const bool narrow = is_floating(item.from_type) && size_of(item.from_type) <= sizeof(float);
  if (item.to_type == item.from_type) {
    kernels::scale_copy(item.to, item.from, item.count, item.to_type, scale);
  } else if (scale.identity() || item.from_type == DType::kBool) {
    kernels::cast(item.to, item.to_type, item.from, item.from_type, item.count);
  } else if (narrow) {
    scale_and_cast<float, DType::kFloat32>(item, scale);
  } else {
    scale_and_cast<double, DType::kFloat64>(item, scale);
  }
}

// Calls a function with each element as fp64, in order.
template <typename Visit>
void for_each_real(const std::byte* from, std::size_t count, DType dtype, Visit&& visit) {
  double values[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t length = std::min(kBlock, count - begin);
    kernels::cast(values, DType::kFloat64, from + begin * size_of(dtype), dtype, length);
    for (std::size_t i = 0; i < length; ++i) visit(values[i]);
  }
}

ByteSpan bytes_of(void* data, std::size_t bytes) { return {static_cast<std::byte*>(data), bytes}; }

}  // namespace

Status FakeGpu::copy_batch(int device, std::span<const GpuCopy> items, Scale scale, GpuStream stream) {
  for (const GpuCopy& item : items) {
    ROUNDELAY_RETURN_IF_ERROR(check_memory(source_of(item)));
    ROUNDELAY_RETURN_IF_ERROR(check_memory(target_of(item)));
  }
  const std::vector<GpuCopy> kept(items.begin(), items.end());
  return enqueue(device, stream, [kept, scale, memory = memory_] {
    for (const GpuCopy& item : kept) {
      memory->expect_live(source_of(item));
      memory->expect_live(target_of(item));
      copy_one(item, scale);
    }
  });
}

Status FakeGpu::reduce_parts(int device, std::byte* to, std::span<const std::byte* const> parts,
                             std::size_t count, DType dtype, ReduceOp op, Scale prescale, Scale scale,
                             GpuStream stream) {
  const std::size_t bytes = count * size_of(dtype);
  std::vector<ConstByteSpan> used{{to, bytes}};
  for (const std::byte* part : parts) used.emplace_back(part, bytes);
  for (const ConstByteSpan span : used) ROUNDELAY_RETURN_IF_ERROR(check_memory(span));
  const std::vector<const void*> kept(parts.begin(), parts.end());
  return enqueue(device, stream, [=, memory = memory_] {
    for (const ConstByteSpan span : used) memory->expect_live(span);
    kernels::reduce_parts(to, kept, count, dtype, op, prescale, scale);
  });
}

Status FakeGpu::norms(int device, double* result, const std::byte* from, std::size_t count, std::size_t chunk,
                      DType dtype, GpuStream stream) {
  const std::size_t chunks = count == 0 ? 0 : (count - 1) / chunk + 1;
  const ConstByteSpan source(from, count * size_of(dtype)),
      target = bytes_of(result, chunks * 2 * sizeof *result);
  ROUNDELAY_RETURN_IF_ERROR(check_memory(source));
  ROUNDELAY_RETURN_IF_ERROR(check_memory(target));
  return enqueue(device, stream, [=, memory = memory_] {
    memory->expect_live(source);
    memory->expect_live(target);
    for (std::size_t i = 0; i < chunks; ++i) {
      double absolute = 0, squares = 0;
      const std::size_t length = std::min(chunk, count - i * chunk);
      for_each_real(from + i * chunk * size_of(dtype), length, dtype, [&](double x) {
        absolute += std::fabs(x);
        squares += x * x;
      });
      result[2 * i] = absolute;
      result[2 * i + 1] = squares;
    }
  });
}

}  // namespace roundelay::doubles
