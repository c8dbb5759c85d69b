// Implements kernels/gpu.h with CUDA. A process has one.
#pragma once

#include "kernels/gpu.h"

namespace roundelay::kernels::cuda {

class CudaKernels final : public GpuKernels {
 public:
  std::string compiled_for() const override;
  Status fits(int device) const override;
  Status copy_batch(int device, std::span<const GpuCopy> items, Scale scale, GpuStream stream) override;
  // Takes at most 256 parts; more are kInvalidArgument.
  Status reduce_parts(int device, std::byte* to, std::span<const std::byte* const> parts, std::size_t count,
                      DType dtype, ReduceOp op, Scale prescale, Scale scale, GpuStream stream) override;
  Status keep(int device, std::byte* residual, std::byte* values, std::size_t count, DType dtype,
              GpuStream stream) override;
  Status give_back(int device, std::byte* values, std::byte* residual, std::size_t count, DType dtype,
                   GpuStream stream) override;
  Status accumulate(int device, float* norms, const ResidualState& kept, std::byte* values, Chunking of,
                    DType dtype, GpuStream stream) override;
  Status mark_overflow(int device, std::byte* value, DType dtype, const float* norms, std::size_t count,
                       GpuStream stream) override;
  Status norms(int device, float* norms, const std::byte* from, Chunking of, DType dtype,
               GpuStream stream) override;
  Status select(int device, std::uint32_t* indices, std::size_t keep, const float* norms, std::size_t count,
                GpuStream stream) override;
  Status number(int device, std::uint32_t* indices, std::size_t count, Progression numbers,
                GpuStream stream) override;
  Status gather(int device, std::byte* to, std::byte* residual, Chunking of,
                std::span<const std::uint32_t> indices, DType dtype, GpuStream stream) override;
  Status scatter(int device, std::byte* to, DType to_type, const std::byte* from, DType from_type,
                 Chunking of, std::span<const std::uint32_t> indices, GpuStream stream) override;
  Status clear_chunks(int device, std::byte* at, Chunking of, std::span<const std::uint32_t> indices,
                      DType dtype, GpuStream stream) override;
  Status top_k(int device, std::span<const float> values, const TopKRule& rule, std::span<float> chosen,
               std::span<std::int64_t> indices, std::byte* scratch, GpuStream stream) override;
  std::size_t top_k_scratch(std::size_t count) const override;
  Status take_pairs(int device, const Pairs& pairs, const ResidualState& kept,
                    std::span<const std::int64_t> indices, GpuStream stream) override;
  Status add_pairs(int device, std::byte* sums, const Pairs& pairs, Scale prescale,
                   GpuStream stream) override;
  Status project(int device, const LowRankBlock& block, DType dtype, GpuStream stream) override;
  Status project_back(int device, const LowRankBlock& block, DType dtype, std::byte* scratch,
                      GpuStream stream) override;
  std::size_t project_back_scratch(std::size_t rows, std::size_t columns, std::size_t count,
                                   DType dtype) const override;
  Status expand(int device, const LowRankBlock& block, double share, DType dtype, GpuStream stream) override;
  Status orthonormalise(int device, const Vectors& vectors, DType dtype, GpuStream stream) override;
  Status renew(int device, const Vectors& to, const Vectors& from, std::uint64_t seed, DType dtype,
               GpuStream stream) override;
};

}  // namespace roundelay::kernels::cuda
