// Implements the residuals and the chunks of kernels/gpu.h with the functions of kernels/.
#include <cstring>
#include <utility>

#include "kernels/chunks.h"
#include "kernels/kernels.h"
#include "tests/cpp/doubles/fake_gpu.h"

namespace roundelay::doubles {
namespace {

using kernels::Chunking;
using Indices = std::span<const std::uint32_t>;

ConstByteSpan bytes_of(const void* data, std::size_t bytes) {
  return {static_cast<const std::byte*>(data), bytes};
}
ConstByteSpan values_of(const std::byte* data, std::size_t count, DType dtype) {
  return {data, count * size_of(dtype)};
}
ConstByteSpan residual_of(const std::byte* data, std::size_t count, DType dtype) {
  return {data, count * size_of(kernels::residual_type(dtype))};
}

}  // namespace

Status FakeGpu::enqueue_on(int device, GpuStream stream, std::vector<ConstByteSpan> used, Work work) {
  for (const ConstByteSpan span : used) ROUNDELAY_RETURN_IF_ERROR(check_memory(span));
  return enqueue(device, stream, [used = std::move(used), work = std::move(work), memory = memory_] {
    for (const ConstByteSpan span : used) memory->expect_live(span);
    work();
  });
}

Status FakeGpu::keep(int device, std::byte* residual, std::byte* values, std::size_t count, DType dtype,
                     GpuStream stream) {
  return enqueue_on(device, stream, {residual_of(residual, count, dtype), values_of(values, count, dtype)},
                    [=] { kernels::keep(residual, values, count, dtype); });
}

Status FakeGpu::give_back(int device, std::byte* values, std::byte* residual, std::size_t count, DType dtype,
                          GpuStream stream) {
  return enqueue_on(device, stream, {residual_of(residual, count, dtype), values_of(values, count, dtype)},
                    [=] { kernels::give_back(values, residual, count, dtype); });
}

Status FakeGpu::accumulate(int device, float* norms, const kernels::ResidualState& kept, std::byte* values,
                           Chunking of, DType dtype, GpuStream stream) {
  std::vector<ConstByteSpan> used = {bytes_of(norms, of.chunks() * sizeof *norms),
                                     values_of(values, of.count, dtype),
                                     residual_of(kept.residual, of.count, dtype)};
  if (kept.momentum != nullptr) used.push_back(residual_of(kept.momentum, of.count, dtype));
  return enqueue_on(device, stream, std::move(used), [=] {
    for (std::size_t i = 0; i < of.chunks(); ++i)
      norms[i] = kernels::accumulate(kernels::chunk_of(kept, of, i, dtype),
                                     values + i * of.chunk * size_of(dtype), of.size(i), dtype);
  });
}

Status FakeGpu::mark_overflow(int device, std::byte* value, DType dtype, const float* norms,
                              std::size_t count, GpuStream stream) {
  return enqueue_on(device, stream, {values_of(value, 1, dtype), bytes_of(norms, count * sizeof *norms)},
                    [=] { kernels::mark_overflow(value, dtype, norms, count); });
}

Status FakeGpu::norms(int device, float* norms, const std::byte* from, Chunking of, DType dtype,
                      GpuStream stream) {
  return enqueue_on(device, stream,
                    {bytes_of(norms, of.chunks() * sizeof *norms), values_of(from, of.count, dtype)}, [=] {
                      for (std::size_t i = 0; i < of.chunks(); ++i)
                        norms[i] = kernels::norm(from + i * of.chunk * size_of(dtype), of.size(i), dtype);
                    });
}

Status FakeGpu::select(int device, std::uint32_t* indices, std::size_t keep, const float* norms,
                       std::size_t count, GpuStream stream) {
  return enqueue_on(device, stream,
                    {bytes_of(indices, keep * sizeof *indices), bytes_of(norms, count * sizeof *norms)},
                    [=] { kernels::select_largest(indices, keep, norms, count); });
}

Status FakeGpu::number(int device, std::uint32_t* indices, std::size_t count, kernels::Progression numbers,
                       GpuStream stream) {
  return enqueue_on(device, stream, {bytes_of(indices, count * sizeof *indices)}, [=] {
    for (std::size_t j = 0; j < count; ++j) indices[j] = numbers.at(j);
  });
}

Status FakeGpu::gather(int device, std::byte* to, std::byte* residual, Chunking of, Indices indices,
                       DType dtype, GpuStream stream) {
  return enqueue_on(device, stream,
                    {values_of(to, indices.size() * of.chunk, dtype), residual_of(residual, of.count, dtype),
                     bytes_of(indices.data(), indices.size_bytes())},
                    [=] {
                      const std::size_t slot = of.chunk * size_of(dtype);
                      const std::size_t kept = of.chunk * size_of(kernels::residual_type(dtype));
                      std::memset(to, 0, indices.size() * slot);
                      for (std::size_t j = 0; j < indices.size(); ++j) {
                        kernels::take_rounded(to + j * slot, residual + indices[j] * kept,
                                              of.size(indices[j]), dtype);
                      }
                    });
}

Status FakeGpu::scatter(int device, std::byte* to, DType to_type, const std::byte* from, DType from_type,
                        Chunking of, Indices indices, GpuStream stream) {
  return enqueue_on(device, stream,
                    {values_of(to, of.count, to_type), values_of(from, indices.size() * of.chunk, from_type),
                     bytes_of(indices.data(), indices.size_bytes())},
                    [=] {
                      for (std::size_t j = 0; j < indices.size(); ++j) {
                        kernels::cast(to + indices[j] * of.chunk * size_of(to_type), to_type,
                                      from + j * of.chunk * size_of(from_type), from_type,
                                      of.size(indices[j]));
                      }
                    });
}

Status FakeGpu::clear_chunks(int device, std::byte* at, Chunking of, Indices indices, DType dtype,
                             GpuStream stream) {
  return enqueue_on(device, stream,
                    {values_of(at, of.count, dtype), bytes_of(indices.data(), indices.size_bytes())}, [=] {
                      const std::size_t size = size_of(dtype);
                      for (const std::uint32_t index : indices)
                        std::memset(at + index * of.chunk * size, 0, of.size(index) * size);
                    });
}

}  // namespace roundelay::doubles
