// Kernels for messages of pairs.
#include "kernels/cuda/pairs.cuh"

#include "kernels/cuda/floating.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"

namespace roundelay::kernels::cuda {
namespace {

template <DType kType>
__global__ void __launch_bounds__(kChunkThreads)
    take_pairs_kernel(const __grid_constant__ TakePairsWork work) {
  take_pairs_block<kType>(this_thread(), work, blockIdx.x);
}

template <DType kType>
__global__ void __launch_bounds__(kChunkThreads) add_pairs_kernel(const __grid_constant__ AddPairsWork work) {
  add_pairs_block<kType>(this_thread(), work, blockIdx.x);
}

}  // namespace

Status CudaKernels::take_pairs(int device, const Pairs& pairs, const ResidualState& kept,
                               std::span<const std::int64_t> indices, GpuStream stream) {
  const TakePairsWork work{pairs, kept, indices.data()};
  return with_floating(pairs.type, [&]<DType kType>() {
    return launch(device, take_pairs_kernel<kType>, blocks_of(work.turns()), kChunkThreads, work, stream);
  });
}

Status CudaKernels::add_pairs(int device, std::byte* sums, const Pairs& pairs, Scale prescale,
                              GpuStream stream) {
  const AddPairsWork work{sums, pairs, make_scaler(prescale)};
  return with_floating(pairs.type, [&]<DType kType>() {
    return launch(device, add_pairs_kernel<kType>, blocks_of(pairs.form.count), kChunkThreads, work, stream);
  });
}

}  // namespace roundelay::kernels::cuda
