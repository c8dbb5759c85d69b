// Kernels for low-rank approximations.
#include "kernels/cuda/low_rank.cuh"

#include <limits>
#include <string>

#include "kernels/cuda/floating.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"

namespace roundelay::kernels::cuda {
namespace {

// The blocks of a multiprocessor. Without a number, ptxas spills registers to have room for more blocks.
constexpr int kProjectBlocks = 3;
constexpr int kVectorBlocks = 1;  // of the whole launch

template <DType kType, int kCount>
__global__ void __launch_bounds__(kLowRankThreads, kProjectBlocks)
    project_kernel(const __grid_constant__ LowRankWork work) {
  __shared__ ProjectShared<ResidualOf<kType>, kCount> shared;
  project_block<kType, kCount>(work, shared, blockIdx.x);
}

template <DType kType, int kCount>
__global__ void __launch_bounds__(kLowRankThreads) sum_tile_kernel(const __grid_constant__ BackWork work) {
  sum_tile_block<kType, kCount>(this_thread(), work, blockIdx.x);
}

template <DType kType>
__global__ void __launch_bounds__(kLowRankThreads) add_tiles_kernel(const __grid_constant__ BackWork work) {
  add_tiles_block<kType>(this_thread(), work, blockIdx.x);
}

template <DType kType>
__global__ void __launch_bounds__(kChunkThreads) expand_kernel(const __grid_constant__ ExpandWork work) {
  expand_block<kType>(this_thread(), work, blockIdx.x);
}

template <typename Real>
__global__ void __launch_bounds__(kVectorThreads, kVectorBlocks)
    orthonormalise_kernel(const __grid_constant__ Vectors work) {
  __shared__ double sum[kNormSums];
  orthonormalise_list<Real>(BlockVectors<Real>(work, sum), work.count);
}

template <typename Real>
__global__ void __launch_bounds__(kVectorThreads, kVectorBlocks)
    renew_kernel(const __grid_constant__ RenewWork work) {
  __shared__ double sum[kNormSums];
  renew_list(BlockVectors<Real>(work.to, sum), BlockVectors<Real>(work.from, sum), work.to.count, work.seed);
}

// Calls enqueue.operator()<n>(first) for kTogether vectors at a time, and for those that are left.
template <typename Enqueue>
Status each_few(std::size_t count, Enqueue enqueue) {
  static_assert(kTogether == 4);
  for (std::size_t first = 0; first < count; first += kTogether) {
    const std::size_t left = count - first;
    ROUNDELAY_RETURN_IF_ERROR(left >= 4   ? enqueue.template operator()<4>(first)
                              : left == 3 ? enqueue.template operator()<3>(first)
                              : left == 2 ? enqueue.template operator()<2>(first)
                                          : enqueue.template operator()<1>(first));
  }
  return {};
}

// Places in a row are 32-bit numbers, to which a block's elements are added.
Status check_columns(const LowRankBlock& block) {
  if (block.columns < (std::uint64_t{1} << 31U)) return {};
  return Status::invalid(std::to_string(block.columns) + " columns are more than a matrix on a GPU can have");
}

}  // namespace

Status CudaKernels::project(int device, const LowRankBlock& block, DType dtype, GpuStream stream) {
  ROUNDELAY_RETURN_IF_ERROR(check_columns(block));
  return with_floating(dtype, [&]<DType kType>() {
    const auto rows = static_cast<unsigned>(project_shape<ResidualOf<kType>>(block.columns).rows);
    return each_few(block.left.count, [&]<int kCount>(std::uint64_t first) {
      return launch(device, project_kernel<kType, kCount>, (block.rows + rows - 1) / rows, kLowRankThreads,
                    LowRankWork{block, first}, stream);
    });
  });
}

std::size_t CudaKernels::project_back_scratch(std::size_t rows, std::size_t columns, std::size_t count,
                                              DType dtype) const {
  return (rows + kRowTile - 1) / kRowTile * columns * count * size_of(residual_type(dtype));
}

Status CudaKernels::project_back(int device, const LowRankBlock& block, DType dtype, std::byte* scratch,
                                 GpuStream stream) {
  ROUNDELAY_RETURN_IF_ERROR(check_columns(block));
  return with_floating(dtype, [&]<DType kType>() {
    const std::uint64_t blocks = column_blocks(block);
    const Status summed = each_few(block.right.count, [&]<int kCount>(std::uint64_t first) {
      return launch(device, sum_tile_kernel<kType, kCount>, row_tiles(block) * blocks, kLowRankThreads,
                    BackWork{{block, first}, scratch}, stream);
    });
    ROUNDELAY_RETURN_IF_ERROR(summed);
    return launch(device, add_tiles_kernel<kType>, block.right.count * blocks, kLowRankThreads,
                  BackWork{{block, 0}, scratch}, stream);
  });
}

Status CudaKernels::expand(int device, const LowRankBlock& block, double share, DType dtype,
                           GpuStream stream) {
  ROUNDELAY_RETURN_IF_ERROR(check_columns(block));
  return with_floating(dtype, [&]<DType kType>() {
    return launch(device, expand_kernel<kType>, blocks_of(block.rows * block.columns), kChunkThreads,
                  ExpandWork{block, share}, stream);
  });
}

Status CudaKernels::orthonormalise(int device, const Vectors& vectors, DType dtype, GpuStream stream) {
  const std::uint64_t blocks = vectors.count > 0 ? 1 : 0;
  return dtype == DType::kFloat64
             ? launch(device, orthonormalise_kernel<double>, blocks, kVectorThreads, vectors, stream)
             : launch(device, orthonormalise_kernel<float>, blocks, kVectorThreads, vectors, stream);
}

Status CudaKernels::renew(int device, const Vectors& to, const Vectors& from, std::uint64_t seed, DType dtype,
                          GpuStream stream) {
  const std::uint64_t blocks = to.count > 0 ? 1 : 0;
  const RenewWork work{to, from, seed};
  return dtype == DType::kFloat64 ? launch(device, renew_kernel<double>, blocks, kVectorThreads, work, stream)
                                  : launch(device, renew_kernel<float>, blocks, kVectorThreads, work, stream);
}

}  // namespace roundelay::kernels::cuda
