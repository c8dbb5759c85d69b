// Kernels for residuals, chunks and norms.
#include <limits>
#include <string>

#include "kernels/cuda/accumulate.cuh"
#include "kernels/cuda/floating.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"

namespace roundelay::kernels::cuda {
namespace {

template <typename How>
__global__ void __launch_bounds__(kChunkThreads) flat_kernel(const __grid_constant__ FlatWork work) {
  move_flat<How>(this_thread(), work, blockIdx.x);
}

template <DType kType>
__global__ void __launch_bounds__(kChunkThreads) gather_kernel(const __grid_constant__ ChunkWork work) {
  gather_block<kType>(this_thread(), work, blockIdx.x);
}

template <DType kTo, DType kFrom>
__global__ void __launch_bounds__(kChunkThreads) scatter_kernel(const __grid_constant__ ChunkWork work) {
  scatter_block<kTo, kFrom>(this_thread(), work, blockIdx.x);
}

template <DType kType>
__global__ void __launch_bounds__(kChunkThreads) clear_kernel(const __grid_constant__ ChunkWork work) {
  clear_block<kType>(this_thread(), work, blockIdx.x);
}

// The blocks of a multiprocessor. For more of them, ptxas would load one pack after the other.
template <DType kType>
constexpr int kKeptBlocks = 1024 / kKeptThreads<kType>;

template <DType kType, typename Way>
__global__ void __launch_bounds__(kKeptThreads<kType>, kKeptBlocks<kType>)
    accumulate_kernel(const __grid_constant__ AccumulateWork work) {
  __shared__ double sum[kNormSums];
  for (int step = 0; step < kNormSteps; ++step) {
    accumulate_step<kType, Way>(step, static_cast<int>(threadIdx.x), work, sum, blockIdx.x);
    __syncthreads();
  }
}

template <DType kType>
__global__ void __launch_bounds__(kChunkThreads) mark_kernel(const __grid_constant__ MarkWork work) {
  mark_overflow_block<kType>(this_thread(), work);
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
    steps.run(step);
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kChunkThreads) number_kernel(const __grid_constant__ NumberWork work) {
  number_block(this_thread(), work, blockIdx.x);
}

// Returns how many elements a block of threads moves, of `count` in the launch.
template <typename How>
Result<std::uint64_t> elements_of_block(int device, std::uint64_t count) {
  const Result<int> processors = platform::cuda::multiprocessors(device);
  if (!processors.ok()) return processors.status();
  const auto packs = static_cast<unsigned>(block_shape(count / kMovePack<How>, kUnroll, *processors).packs);
  return std::uint64_t{kChunkThreads} * packs * kMovePack<How>;
}

template <typename How>
Status launch_flat(int device, FlatWork work, GpuStream stream) {
  const Result<std::uint64_t> each = elements_of_block<How>(device, work.count);
  if (!each.ok()) return each.status();
  work.each = *each;
  return launch(device, flat_kernel<How>, (work.count + work.each - 1) / work.each, kChunkThreads, work,
                stream);
}

// `How` moves the elements of the kernel's chunks, `slots` of them.
template <typename How>
Status launch_chunks(int device, void (*kernel)(ChunkWork), ChunkWork work, std::uint64_t slots,
                     GpuStream stream) {
  const Result<std::uint64_t> each = elements_of_block<How>(device, slots * work.of.chunk);
  if (!each.ok()) return each.status();
  work.each = *each;
  work.blocks = (work.of.chunk + work.each - 1) / work.each;
  return launch(device, kernel, work.blocks * slots, kChunkThreads, work, stream);
}

}  // namespace

Status CudaKernels::keep(int device, std::byte* residual, std::byte* values, std::size_t count, DType dtype,
                         GpuStream stream) {
  return with_floating(dtype, [&]<DType kType>() {
    return launch_flat<Keep<kType>>(device, {residual, values, count, 0}, stream);
  });
}

Status CudaKernels::give_back(int device, std::byte* values, std::byte* residual, std::size_t count,
                              DType dtype, GpuStream stream) {
  return with_floating(dtype, [&]<DType kType>() {
    return launch_flat<GiveBack<kType>>(device, {values, residual, count, 0}, stream);
  });
}

Status CudaKernels::accumulate(int device, float* norms, const ResidualState& kept, std::byte* values,
                               Chunking of, DType dtype, GpuStream stream) {
  return with_floating(dtype, [&]<DType kType>() {
    return with_way(kept, [&]<typename Way>() {
      return launch(device, accumulate_kernel<kType, Way>, of.chunks(), kKeptThreads<kType>,
                    AccumulateWork{norms, kept, values, of}, stream);
    });
  });
}

Status CudaKernels::mark_overflow(int device, std::byte* value, DType dtype, const float* norms,
                                  std::size_t count, GpuStream stream) {
  return with_floating(dtype, [&]<DType kType>() {
    return launch(device, mark_kernel<kType>, 1, kChunkThreads, MarkWork{value, norms, count}, stream);
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

Status CudaKernels::number(int device, std::uint32_t* indices, std::size_t count, Progression numbers,
                           GpuStream stream) {
  return launch(device, number_kernel, blocks_of(count), kChunkThreads, NumberWork{indices, count, numbers},
                stream);
}

Status CudaKernels::gather(int device, std::byte* to, std::byte* residual, Chunking of,
                           std::span<const std::uint32_t> indices, DType dtype, GpuStream stream) {
  const ChunkWork work{to, residual, indices.data(), of, 0, 0};
  return with_floating(dtype, [&]<DType kType>() {
    return launch_chunks<Take<kType>>(device, gather_kernel<kType>, work, indices.size(), stream);
  });
}

Status CudaKernels::scatter(int device, std::byte* to, DType to_type, const std::byte* from, DType from_type,
                            Chunking of, std::span<const std::uint32_t> indices, GpuStream stream) {
  // The kernel only reads `from`; the two directions share a struct.
  const ChunkWork work{to, const_cast<std::byte*>(from), indices.data(), of, 0, 0};
  const auto by = [&]<DType kTo, DType kFrom>() {
    return launch_chunks<Cast<kTo, kFrom>>(device, scatter_kernel<kTo, kFrom>, work, indices.size(), stream);
  };
  if (to_type == DType::kFloat32 && from_type == DType::kFloat16)
    return by.template operator()<DType::kFloat32, DType::kFloat16>();
  if (to_type == DType::kFloat32 && from_type == DType::kBFloat16)
    return by.template operator()<DType::kFloat32, DType::kBFloat16>();
  if (to_type != from_type) {
    return Status::invalid("chunks of " + std::string(name_of(from_type)) + " do not become " +
                           std::string(name_of(to_type)));
  }
  return with_floating(to_type, [&]<DType kType>() { return by.template operator()<kType, kType>(); });
}

Status CudaKernels::clear_chunks(int device, std::byte* at, Chunking of,
                                 std::span<const std::uint32_t> indices, DType dtype, GpuStream stream) {
  const ChunkWork work{at, nullptr, indices.data(), of, 0, 0};
  return with_floating(dtype, [&]<DType kType>() {
    return launch_chunks<Clear<kType>>(device, clear_kernel<kType>, work, indices.size(), stream);
  });
}

}  // namespace roundelay::kernels::cuda
