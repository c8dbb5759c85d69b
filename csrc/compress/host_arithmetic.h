// Arithmetic on host memory: each call does its work at once, with the functions of kernels/.
#pragma once

#include "compress/arithmetic.h"

namespace roundelay::compress {

class HostArithmetic final : public Arithmetic {
 public:
  Status clear(std::byte* at, std::size_t bytes) override;
  Status scale(std::byte* values, std::size_t count, DType dtype, Scale scale) override;
  Status keep(std::byte* residual, std::byte* values, std::size_t count, DType dtype) override;
  Status give_back(std::byte* values, std::byte* residual, std::size_t count, DType dtype) override;
  Status accumulate(std::span<float> norms, const kernels::ResidualState& kept, std::byte* values,
                    Chunking of, DType dtype) override;
  Status mark_overflow(std::byte* value, DType dtype, std::span<const float> norms) override;
  Status copy(std::span<const kernels::GpuCopy> items) override;
  Status norms(float* norms, const std::byte* from, Chunking of, DType dtype) override;
  Status select(std::span<std::uint32_t> indices, std::span<const float> norms) override;
  Status number(std::span<std::uint32_t> indices, kernels::Progression numbers) override;
  Status gather(std::byte* to, std::byte* residual, Chunking of, std::span<const std::uint32_t> indices,
                DType dtype) override;
  Status scatter(std::byte* to, DType to_type, const std::byte* from, DType from_type, Chunking of,
                 std::span<const std::uint32_t> indices) override;
  Status clear_chunks(std::byte* at, Chunking of, std::span<const std::uint32_t> indices,
                      DType dtype) override;
  Status top_k(std::span<const float> values, const kernels::TopKRule& rule, std::span<float> chosen,
               std::span<std::int64_t> indices, std::byte* scratch) override;
  std::size_t top_k_scratch(std::size_t count) const override;
  Status take_pairs(const kernels::Pairs& pairs, const kernels::ResidualState& kept,
                    std::span<const std::int64_t> indices) override;
  Status add_pairs(std::byte* sums, const kernels::Pairs& pairs, Scale prescale) override;
  Status project(const kernels::LowRankBlock& block, DType dtype) override;
  Status project_back(const kernels::LowRankBlock& block, DType dtype, std::byte* scratch) override;
  std::size_t project_back_scratch(std::size_t /*rows*/, std::size_t /*columns*/, std::size_t /*count*/,
                                   DType /*dtype*/) const override {
    return 0;
  }
  Status expand(const kernels::LowRankBlock& block, double share, DType dtype) override;
  Status orthonormalise(const kernels::Vectors& vectors, DType dtype) override;
  Status renew(const kernels::Vectors& to, const kernels::Vectors& from, std::uint64_t seed,
               DType dtype) override;
};

}  // namespace roundelay::compress
