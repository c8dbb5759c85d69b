// Kernels that reduce many parts.
#include <algorithm>
#include <string>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"

namespace roundelay::kernels::cuda {
namespace {

// The blocks of a multiprocessor; 0: as ptxas likes it. What prescales would spill registers for more blocks.
template <typename Form>
constexpr int kReduceBlocks = Form::kPrescales ? 3 : 0;

template <typename Form>
__global__ void __launch_bounds__(kMostThreads, kReduceBlocks<Form>)
    reduce_kernel(const __grid_constant__ Reduction work) {
  reduce_chunk<Form>(this_thread(), work, blockIdx.x * work.chunk);
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
  const Result<int> processors = platform::cuda::multiprocessors(device);
  if (!processors.ok()) return processors.status();
  Reduction work;
  work.to = to;
  work.count = count;
  work.prescale = make_scaler(prescale);
  work.scale = make_scaler(scale);
  work.parts = static_cast<std::int32_t>(parts.size());
  work.op = op;
  work.width = common_width(to, parts, size_of(dtype));
  std::copy(parts.begin(), parts.end(), work.part);
  return with_type(dtype, [&]<DType kType>() {
    return with_form<kType>(op, parts.size(), !prescale.identity(), [&]<typename Form>() {
      const BlockShape shape = block_shape(count / Form::kPack, Form::kPacks, *processors);
      work.chunk = shape.of_block() * Form::kPack;
      return launch(device, reduce_kernel<Form>, (count + work.chunk - 1) / work.chunk, shape.threads, work,
                    stream);
    });
  });
}

}  // namespace roundelay::kernels::cuda
