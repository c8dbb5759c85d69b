// Kernels for residuals, chunks and norms.
#include <limits>
#include <string>

#include "kernels/cuda/chunks.cuh"
#include "kernels/cuda/kernels.h"
#include "platform/cuda/device.h"

namespace roundelay::kernels::cuda {
namespace {

using platform::cuda::check;
using platform::cuda::native;

__device__ __forceinline__ Thread this_thread() {
  return {static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)};
}

template <typename How>
__global__ void __launch_bounds__(kChunkThreads) flat_kernel(const __grid_constant__ FlatWork work) {
  move_flat<How>(this_thread(), work, blockIdx.x);
}

template <DType kType>
__global__ void __launch_bounds__(kChunkThreads) gather_kernel(const __grid_constant__ ChunkWork work) {
  gather_block<kType>(this_thread(), work, blockIdx.x);
}

template <DType kType>
__global__ void __launch_bounds__(kChunkThreads) scatter_kernel(const __grid_constant__ ChunkWork work) {
  scatter_block<kType>(this_thread(), work, blockIdx.x);
}

template <DType kType>
__global__ void __launch_bounds__(kNormThreads<kType>) norms_kernel(const __grid_constant__ NormWork work) {
  __shared__ double sum[kNormSums];
  for (int step = 0; step < kNormSteps; ++step) {
    norm_step<kType>(step, static_cast<int>(threadIdx.x), work, sum, blockIdx.x);
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kSelectThreads) select_kernel(const __grid_constant__ Largest work) {
  __shared__ SelectSteps::Shared shared;
  SelectSteps steps(work, shared, threadIdx.x);
  for (int step = 0; step < SelectSteps::kSteps; ++step) {
    steps.take(step);
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kChunkThreads) turn_kernel(const __grid_constant__ TurnWork work) {
  turn_step(0, this_thread(), work);
  __syncthreads();
  turn_step(1, this_thread(), work);
}

// Calls `function` with the type as a template argument.
template <typename Function>
Status with_floating(DType dtype, Function function) {
  switch (dtype) {
    case DType::kFloat64:
      return function.template operator()<DType::kFloat64>();
    case DType::kFloat32:
      return function.template operator()<DType::kFloat32>();
    case DType::kFloat16:
      return function.template operator()<DType::kFloat16>();
    case DType::kBFloat16:
      return function.template operator()<DType::kBFloat16>();
    default:
      return Status::invalid("residuals and chunks are of floating types, not " +
                             std::string(name_of(dtype)));
  }
}

template <typename Work>
Status launch(int device, void (*kernel)(Work), std::uint64_t blocks, int threads, Work work,
              GpuStream stream) {
  if (blocks == 0) return {};
  if (blocks > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max())) {
    return Status::invalid(std::to_string(blocks) + " blocks of chunks are more than one launch can have");
  }
  const platform::cuda::OnDevice on(device);
  ROUNDELAY_RETURN_IF_ERROR(on.status());
  void* arguments[] = {&work};
  return check(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(static_cast<unsigned>(blocks)),
                                dim3(static_cast<unsigned>(threads)), arguments, 0, native(stream)),
               "cudaLaunchKernel(chunks)");
}

std::uint64_t blocks_of(std::uint64_t elements) { return (elements + kBlockElements - 1) / kBlockElements; }

}  // namespace

Status CudaKernels::keep(int device, std::byte* residual, std::byte* values, std::size_t count, DType dtype,
                         GpuStream stream) {
  return with_floating(dtype, [&]<DType kType>() {
    return launch(device, flat_kernel<Keep<kType>>, blocks_of(count), kChunkThreads,
                  FlatWork{residual, values, count}, stream);
  });
}

Status CudaKernels::give_back(int device, std::byte* values, std::byte* residual, std::size_t count,
                              DType dtype, GpuStream stream) {
  return with_floating(dtype, [&]<DType kType>() {
    return launch(device, flat_kernel<GiveBack<kType>>, blocks_of(count), kChunkThreads,
                  FlatWork{values, residual, count}, stream);
  });
}

Status CudaKernels::norms(int device, float* norms, const std::byte* from, Chunking of, DType dtype,
                          GpuStream stream) {
  return with_floating(dtype, [&]<DType kType>() {
    return launch(device, norms_kernel<kType>, of.chunks(), kNormThreads<kType>, NormWork{norms, from, of},
                  stream);
  });
}

Status CudaKernels::select(int device, std::uint32_t* indices, std::size_t keep, const float* norms,
                           std::size_t count, GpuStream stream) {
  if (keep > count || count > std::numeric_limits<std::uint32_t>::max()) {
    return Status::invalid("cannot select " + std::to_string(keep) + " of " + std::to_string(count) +
                           " norms");
  }
  const Largest work{indices, static_cast<std::uint32_t>(keep), norms, static_cast<std::uint32_t>(count)};
  return launch(device, select_kernel, 1, kSelectThreads, work, stream);
}

Status CudaKernels::next_turn(int device, std::uint32_t* indices, std::size_t chosen, std::size_t parts,
                              std::uint64_t* turn, GpuStream stream) {
  return launch(device, turn_kernel, 1, kChunkThreads, TurnWork{indices, chosen, parts, turn}, stream);
}

Status CudaKernels::gather(int device, std::byte* to, std::byte* residual, Chunking of,
                           std::span<const std::uint32_t> indices, DType dtype, GpuStream stream) {
  const ChunkWork work{to, residual, indices.data(), of, blocks_of(of.chunk)};
  return with_floating(dtype, [&]<DType kType>() {
    return launch(device, gather_kernel<kType>, work.blocks * indices.size(), kChunkThreads, work, stream);
  });
}

Status CudaKernels::scatter(int device, std::byte* to, const std::byte* from, Chunking of,
                            std::span<const std::uint32_t> indices, DType dtype, GpuStream stream) {
  // The kernel only reads `from`; the two directions share a struct.
  const ChunkWork work{to, const_cast<std::byte*>(from), indices.data(), of, blocks_of(of.chunk)};
  return with_floating(dtype, [&]<DType kType>() {
    return launch(device, scatter_kernel<kType>, work.blocks * indices.size(), kChunkThreads, work, stream);
  });
}

}  // namespace roundelay::kernels::cuda
