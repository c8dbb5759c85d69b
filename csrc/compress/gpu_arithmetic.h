// Arithmetic on a GPU's memory: each call enqueues its work to one stream.
#pragma once

#include "base/gpu_runtime.h"
#include "compress/arithmetic.h"
#include "kernels/gpu.h"

namespace roundelay::compress {

class GpuArithmetic final : public Arithmetic {
 public:
  // `stream` is a stream of the GPU with index `device`. It, `runtime` and `kernels` outlive this object.
  GpuArithmetic(GpuRuntime& runtime, kernels::GpuKernels& kernels, int device, GpuStream stream)
      : runtime_(runtime), kernels_(kernels), device_(device), stream_(stream) {}

  Status clear(std::byte* at, std::size_t bytes) override {
    return runtime_.zero(device_, at, bytes, stream_);
  }
  Status scale(std::byte* values, std::size_t count, DType dtype, Scale scale) override {
    const kernels::GpuCopy in_place{values, values, count, dtype, dtype};
    return kernels_.copy_batch(device_, {&in_place, 1}, scale, stream_);
  }
  Status keep(std::byte* residual, std::byte* values, std::size_t count, DType dtype) override {
    return kernels_.keep(device_, residual, values, count, dtype, stream_);
  }
  Status give_back(std::byte* values, std::byte* residual, std::size_t count, DType dtype) override {
    return kernels_.give_back(device_, values, residual, count, dtype, stream_);
  }
  Status accumulate(std::span<float> norms, const kernels::ResidualState& kept, std::byte* values,
                    Chunking of, DType dtype) override {
    return kernels_.accumulate(device_, norms.data(), kept, values, of, dtype, stream_);
  }
  Status mark_overflow(std::byte* value, DType dtype, std::span<const float> norms) override {
    return kernels_.mark_overflow(device_, value, dtype, norms.data(), norms.size(), stream_);
  }
  Status copy(std::span<const kernels::GpuCopy> items) override {
    return kernels_.copy_batch(device_, items, {}, stream_);
  }
  Status norms(float* norms, const std::byte* from, Chunking of, DType dtype) override {
    return kernels_.norms(device_, norms, from, of, dtype, stream_);
  }
  Status select(std::span<std::uint32_t> indices, std::span<const float> norms) override {
    return kernels_.select(device_, indices.data(), indices.size(), norms.data(), norms.size(), stream_);
  }
  Status number(std::span<std::uint32_t> indices, kernels::Progression numbers) override {
    return kernels_.number(device_, indices.data(), indices.size(), numbers, stream_);
  }
  Status gather(std::byte* to, std::byte* residual, Chunking of, std::span<const std::uint32_t> indices,
                DType dtype) override {
    return kernels_.gather(device_, to, residual, of, indices, dtype, stream_);
  }
  Status scatter(std::byte* to, DType to_type, const std::byte* from, DType from_type, Chunking of,
                 std::span<const std::uint32_t> indices) override {
    return kernels_.scatter(device_, to, to_type, from, from_type, of, indices, stream_);
  }
  Status clear_chunks(std::byte* at, Chunking of, std::span<const std::uint32_t> indices,
                      DType dtype) override {
    return kernels_.clear_chunks(device_, at, of, indices, dtype, stream_);
  }
  Status top_k(std::span<const float> values, const kernels::TopKRule& rule, std::span<float> chosen,
               std::span<std::int64_t> indices, std::byte* scratch) override {
    return kernels_.top_k(device_, values, rule, chosen, indices, scratch, stream_);
  }
  std::size_t top_k_scratch(std::size_t count) const override { return kernels_.top_k_scratch(count); }
  Status take_pairs(const kernels::Pairs& pairs, const kernels::ResidualState& kept,
                    std::span<const std::int64_t> indices) override {
    return kernels_.take_pairs(device_, pairs, kept, indices, stream_);
  }
  Status add_pairs(std::byte* sums, const kernels::Pairs& pairs, Scale prescale) override {
    return kernels_.add_pairs(device_, sums, pairs, prescale, stream_);
  }
  Status project(const kernels::LowRankBlock& block, DType dtype) override {
    return kernels_.project(device_, block, dtype, stream_);
  }
  Status project_back(const kernels::LowRankBlock& block, DType dtype, std::byte* scratch) override {
    return kernels_.project_back(device_, block, dtype, scratch, stream_);
  }
  std::size_t project_back_scratch(std::size_t rows, std::size_t columns, std::size_t count,
                                   DType dtype) const override {
    return kernels_.project_back_scratch(rows, columns, count, dtype);
  }
  Status expand(const kernels::LowRankBlock& block, double share, DType dtype) override {
    return kernels_.expand(device_, block, share, dtype, stream_);
  }
  Status orthonormalise(const kernels::Vectors& vectors, DType dtype) override {
    return kernels_.orthonormalise(device_, vectors, dtype, stream_);
  }
  Status renew(const kernels::Vectors& to, const kernels::Vectors& from, std::uint64_t seed,
               DType dtype) override {
    return kernels_.renew(device_, to, from, seed, dtype, stream_);
  }

 private:
  GpuRuntime& runtime_;
  kernels::GpuKernels& kernels_;
  const int device_;
  const GpuStream stream_;
};

}  // namespace roundelay::compress
