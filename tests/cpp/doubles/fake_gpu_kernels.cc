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

}  // namespace roundelay::doubles
