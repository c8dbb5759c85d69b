// Implements the selection and the messages of pairs of kernels/gpu.h with the functions of kernels/.
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/pairs.h"
#include "kernels/top_k.h"
#include "tests/cpp/doubles/fake_gpu.h"

namespace roundelay::doubles {
namespace {

ConstByteSpan memory_at(const void* data, std::size_t bytes) {
  return {static_cast<const std::byte*>(data), bytes};
}

std::vector<ConstByteSpan> memory_of(const kernels::Pairs& pairs) {
  return {memory_at(pairs.overflow, sizeof *pairs.overflow),
          {pairs.values, pairs.form.count * size_of(pairs.type)},
          memory_at(pairs.words, pairs.form.bytes())};
}

ConstByteSpan array_of(const std::byte* data, const kernels::Pairs& pairs) {
  return {data, pairs.form.elements * size_of(kernels::residual_type(pairs.type))};
}

}  // namespace

Status FakeGpu::top_k(int device, std::span<const float> values, const kernels::TopKRule& rule,
                      std::span<float> chosen, std::span<std::int64_t> indices, std::byte* scratch,
                      GpuStream stream) {
  const std::size_t bytes = top_k_scratch(values.size());
  return enqueue_on(device, stream,
                    {memory_at(values.data(), values.size_bytes()),
                     memory_at(chosen.data(), chosen.size_bytes()),
                     memory_at(indices.data(), indices.size_bytes()),
                     {scratch, bytes}},
                    [=] {
                      std::memset(scratch, 0x5a, bytes);
                      kernels::top_k(values, rule, chosen, indices);
                    });
}

std::size_t FakeGpu::top_k_scratch(std::size_t count) const { return 64 + count / 64; }

Status FakeGpu::take_pairs(int device, const kernels::Pairs& pairs, const kernels::ResidualState& kept,
                           std::span<const std::int64_t> indices, GpuStream stream) {
  std::vector<ConstByteSpan> used = memory_of(pairs);
  used.push_back(memory_at(indices.data(), indices.size_bytes()));
  used.push_back(array_of(kept.residual, pairs));
  if (kept.momentum != nullptr) used.push_back(array_of(kept.momentum, pairs));
  return enqueue_on(device, stream, std::move(used), [=] { kernels::take_pairs(pairs, kept, indices); });
}

Status FakeGpu::add_pairs(int device, std::byte* sums, const kernels::Pairs& pairs, Scale prescale,
                          GpuStream stream) {
  std::vector<ConstByteSpan> used = memory_of(pairs);
  used.push_back(array_of(sums, pairs));
  return enqueue_on(device, stream, std::move(used), [=] {
    if (!kernels::add_pairs(sums, pairs, prescale)) *pairs.overflow = std::numeric_limits<float>::quiet_NaN();
  });
}

}  // namespace roundelay::doubles
