// L1 and L2 norms: one block of threads per chunk. The order of the fp64 additions depends only on sizes.
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/memory.cuh"
#include "kernels/cuda/plan.h"
#include "platform/cuda/device.h"

namespace roundelay::kernels::cuda {
namespace {

using platform::cuda::check;

constexpr int kWarp = 32;
constexpr int kMostNormThreads = 512;

struct Norms {
  double* result;
  const std::byte* from;
  std::uint64_t count;
  std::uint64_t chunk;
};

struct Both {
  double absolute = 0;
  double squared = 0;

  __device__ __forceinline__ void add(double value) {
    absolute += value < 0 ? -value : value;
    squared += value * value;
  }
  __device__ __forceinline__ void add(const Both& other) {
    absolute += other.absolute;
    squared += other.squared;
  }
  // Sums over a warp. The first thread gets the result.
  __device__ __forceinline__ void gather() {
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      add(Both{__shfl_down_sync(~0U, absolute, distance), __shfl_down_sync(~0U, squared, distance)});
    }
  }
};

template <DType kType, bool kAligned>
__device__ __forceinline__ Both thread_sum(const std::byte* from, std::uint64_t count) {
  using Element = Stored<kType>;
  constexpr int kPack = pack_elements(sizeof(Element), 1);
  const bool packs = kAligned && reinterpret_cast<std::uintptr_t>(from) % kPackBytes == 0;
  const std::uint64_t step = std::uint64_t{blockDim.x} * kPack;
  Both sum;
  for (std::uint64_t first = std::uint64_t{threadIdx.x} * kPack; first < count; first += kUnroll * step) {
    Pack<Element, kPack> pack[kUnroll];
    const std::uint64_t last = first + (kUnroll - 1) * step + kPack;
    if (packs && last <= count) {
      ROUNDELAY_UNROLL
      for (int u = 0; u < kUnroll; ++u)
        pack[u] = load_pack<Element, kPack>(from + (first + u * step) * sizeof(Element));
    } else {
      ROUNDELAY_UNROLL
      for (int i = 0; i < kUnroll * kPack; ++i) {
        const std::uint64_t at = first + i / kPack * step + i % kPack;
        pack[i / kPack].at[i % kPack] =
            at < count ? load_one<kAligned, Element>(from + at * sizeof(Element)) : Element{};
      }
    }
    ROUNDELAY_UNROLL
    for (int i = 0; i < kUnroll * kPack; ++i)
      sum.add(static_cast<double>(number<kType>(pack[i / kPack].at[i % kPack])));
  }
  return sum;
}

template <DType kType>
__global__ void __launch_bounds__(kMostNormThreads) norms_kernel(const __grid_constant__ Norms work) {
  __shared__ Both warps[kMostNormThreads / kWarp];
  const std::uint64_t begin = blockIdx.x * work.chunk;
  const std::uint64_t left = work.count - begin;
  const std::uint64_t count = left < work.chunk ? left : work.chunk;
  const std::byte* const from = work.from + begin * sizeof(Stored<kType>);
  const bool aligned = reinterpret_cast<std::uintptr_t>(from) % sizeof(Stored<kType>) == 0;
  Both sum = aligned ? thread_sum<kType, true>(from, count) : thread_sum<kType, false>(from, count);
  sum.gather();
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) sum.add(warps[warp]);
  work.result[2 * blockIdx.x] = sum.absolute;
  work.result[2 * blockIdx.x + 1] = sum.squared;
}

const void* find_kernel(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return reinterpret_cast<const void*>(&norms_kernel<DType::kFloat64>);
    case DType::kFloat32:
      return reinterpret_cast<const void*>(&norms_kernel<DType::kFloat32>);
    case DType::kFloat16:
      return reinterpret_cast<const void*>(&norms_kernel<DType::kFloat16>);
    case DType::kBFloat16:
      return reinterpret_cast<const void*>(&norms_kernel<DType::kBFloat16>);
    default:
      return nullptr;
  }
}

unsigned threads_for(std::size_t chunk, std::size_t size) {
  const std::size_t each = kUnroll * static_cast<std::size_t>(pack_elements(size, 1));
  const std::size_t warps = (chunk + each * kWarp - 1) / (each * kWarp);
  return static_cast<unsigned>(warps < kMostNormThreads / kWarp ? warps * kWarp : kMostNormThreads);
}

}  // namespace

Status CudaKernels::norms(int device, double* result, const std::byte* from, std::size_t count,
                          std::size_t chunk, DType dtype, GpuStream stream) {
  const void* const kernel = find_kernel(dtype);
  if (kernel == nullptr || chunk == 0) {
    return Status::invalid("norms are of floating types, in chunks of at least one element");
  }
  if (count == 0) return {};
  const platform::cuda::OnDevice on(device);
  ROUNDELAY_RETURN_IF_ERROR(on.status());
  Norms work{result, from, count, chunk};
  void* arguments[] = {&work};
  return check(cudaLaunchKernel(kernel, dim3(static_cast<unsigned>((count + chunk - 1) / chunk)),
                                dim3(threads_for(chunk < count ? chunk : count, size_of(dtype))), arguments,
                                0, platform::cuda::native(stream)),
               "cudaLaunchKernel(norms)");
}

}  // namespace roundelay::kernels::cuda
