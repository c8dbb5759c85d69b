// Kernels that reduce many parts.
#include <algorithm>
#include <array>
#include <string>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.cuh"
#include "platform/cuda/device.h"

namespace roundelay::kernels::cuda {
namespace {

using platform::cuda::check;

template <DType kType, typename Kept>
__global__ void __launch_bounds__(kMostThreads) reduce_kernel(const __grid_constant__ Reduction work) {
  const Thread thread{static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)};
  reduce_chunk<kType, Kept>(thread, work, blockIdx.x * work.chunk);
}

using Kernel = void (*)(Reduction);

struct KernelOf {
  Kernel kernel;
  int elements;  // per thread
};
struct Kernels {
  KernelOf sum;
  KernelOf steps;
};

template <DType kType, typename Kept>
constexpr KernelOf kernel_of() {
  return {&reduce_kernel<kType, Kept>, kReduceElements<kType, Kept>};
}

template <DType kType>
constexpr Kernels kernels_of() {
  constexpr KernelOf kSteps = kernel_of<kType, Steps<kType>>();
  if constexpr (kType == DType::kBool) {
    return {kSteps, kSteps};  // the sum of bools is "or"
  } else {
    return {kernel_of<kType, Sum<kType>>(), kSteps};
  }
}

const Kernels& find_kernels(DType dtype) {
  static constexpr std::array<Kernels, kDTypeCount> kKernels = {
      kernels_of<DType::kFloat64>(),  kernels_of<DType::kFloat32>(), kernels_of<DType::kFloat16>(),
      kernels_of<DType::kBFloat16>(), kernels_of<DType::kInt64>(),   kernels_of<DType::kInt32>(),
      kernels_of<DType::kInt16>(),    kernels_of<DType::kInt8>(),    kernels_of<DType::kUInt8>(),
      kernels_of<DType::kBool>()};
  return kKernels[static_cast<std::size_t>(dtype)];
}

}  // namespace

Status CudaKernels::reduce_parts(int device, std::byte* to, std::span<const std::byte* const> parts,
                                 std::size_t count, DType dtype, ReduceOp op, Scale prescale, Scale scale,
                                 GpuStream stream) {
  if (parts.empty() || parts.size() > kMostParts) {
    return Status::invalid("a device reduces 1 to " + std::to_string(kMostParts) + " parts, not " +
                           std::to_string(parts.size()));
  }
  if (count == 0) return {};
  const platform::cuda::OnDevice on(device);
  ROUNDELAY_RETURN_IF_ERROR(on.status());
  const Result<int> processors = platform::cuda::multiprocessors(device);
  if (!processors.ok()) return processors.status();

  const KernelOf& found = op == ReduceOp::kSum ? find_kernels(dtype).sum : find_kernels(dtype).steps;
  const int threads = block_threads(count, found.elements, *processors);
  Reduction work;
  work.to = to;
  work.count = count;
  work.chunk = static_cast<std::uint64_t>(threads * found.elements);
  work.prescale = make_scaler(prescale);
  work.scale = make_scaler(scale);
  work.parts = static_cast<std::int32_t>(parts.size());
  work.op = op;
  work.width = common_width(to, parts, size_of(dtype));
  std::copy(parts.begin(), parts.end(), work.part);
  const std::uint64_t blocks = (count + work.chunk - 1) / work.chunk;
  void* arguments[] = {&work};
  return check(
      cudaLaunchKernel(found.kernel, dim3(static_cast<unsigned>(blocks)),
                       dim3(static_cast<unsigned>(threads)), arguments, 0, platform::cuda::native(stream)),
      "cudaLaunchKernel(reduce)");
}

}  // namespace roundelay::kernels::cuda
