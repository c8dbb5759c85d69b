// Whether all elements are numbers, and finite.
#include <algorithm>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/memory.cuh"
#include "kernels/cuda/plan.h"
#include "platform/cuda/device.h"

namespace roundelay::kernels::cuda {
namespace {

using platform::cuda::check;

struct Search {
  float* result;
  const std::byte* from;
  std::uint64_t count;
};

template <DType kType, bool kAligned>
__device__ __forceinline__ bool any_bad(const Search& work) {
  using Element = Stored<kType>;
  constexpr int kPack = pack_elements(sizeof(Element), 1);
  constexpr std::uint64_t kStep = std::uint64_t{kMostThreads} * kPack;
  const std::uint64_t begin = blockIdx.x * kStep * kUnroll;
  const bool packs = kAligned && reinterpret_cast<std::uintptr_t>(work.from) % kPackBytes == 0;
  bool bad = false;
  if (packs && begin + kStep * kUnroll <= work.count) {
    const std::byte* const from = work.from + (begin + threadIdx.x * kPack) * sizeof(Element);
    Pack<Element, kPack> pack[kUnroll];
    ROUNDELAY_UNROLL
    for (int u = 0; u < kUnroll; ++u) pack[u] = load_pack<Element, kPack>(from + u * kStep * sizeof(Element));
    ROUNDELAY_UNROLL
    for (int i = 0; i < kUnroll * kPack; ++i) bad |= !is_finite<kType>(pack[i / kPack].at[i % kPack]);
  } else {
    const std::uint64_t end = min(begin + kStep * kUnroll, work.count);
    for (std::uint64_t i = begin + threadIdx.x; i < end; i += kMostThreads)
      bad |= !is_finite<kType>(load_one<kAligned, Element>(work.from + i * sizeof(Element)));
  }
  return bad;
}

template <DType kType>
__global__ void __launch_bounds__(kMostThreads) search_kernel(const __grid_constant__ Search work) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(work.from) % sizeof(Stored<kType>) == 0;
  const bool bad = aligned ? any_bad<kType, true>(work) : any_bad<kType, false>(work);
  if (bad) *work.result = 1.0F;  // whoever writes writes the same
}

template <DType kType>
Status search(const Search& work, cudaStream_t stream) {
  constexpr std::uint64_t kChunk =
      std::uint64_t{kMostThreads} * kUnroll * pack_elements(sizeof(Stored<kType>), 1);
  Search argument = work;
  void* arguments[] = {&argument};
  return check(
      cudaLaunchKernel(&search_kernel<kType>, dim3(static_cast<unsigned>((work.count + kChunk - 1) / kChunk)),
                       dim3(kMostThreads), arguments, 0, stream),
      "cudaLaunchKernel(find_not_finite)");
}

}  // namespace

Status CudaKernels::find_not_finite(int device, float* result, const std::byte* from, std::size_t count,
                                    DType dtype, GpuStream stream) {
  if (count == 0 || !is_floating(dtype)) return {};
  const platform::cuda::OnDevice on(device);
  ROUNDELAY_RETURN_IF_ERROR(on.status());
  const Search work{result, from, count};
  cudaStream_t native = platform::cuda::native(stream);
  switch (dtype) {
    case DType::kFloat64:
      return search<DType::kFloat64>(work, native);
    case DType::kFloat32:
      return search<DType::kFloat32>(work, native);
    case DType::kFloat16:
      return search<DType::kFloat16>(work, native);
    default:
      return search<DType::kBFloat16>(work, native);
  }
}

}  // namespace roundelay::kernels::cuda
