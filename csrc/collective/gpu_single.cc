#include "collective/gpu_single.h"

namespace roundelay::collective {
namespace {

Status scale_single(const Call& call, const std::byte* input, kernels::GpuKernels& kernels, int device) {
  const std::size_t count = call.buffer.bytes / size_of(call.dtype);
  const bool unscaled = call.prescale.identity() && call.scale.identity();
  if (count == 0 || (unscaled && input == call.buffer.data())) return {};
  const std::byte* const part[] = {input};
  const ReduceOp op = call.reduce_op == ReduceOp::kAdasum ? ReduceOp::kSum : call.reduce_op;
  return kernels.reduce_parts(device, call.buffer.data(), part, count, call.dtype, op, call.prescale,
                              call.scale, call.stream);
}

}  // namespace

Status enqueue_single(const Call& call, GpuRuntime& runtime, kernels::GpuKernels& kernels, int device) {
  switch (call.operation) {
    case Operation::kAllreduce:
      return scale_single(call, call.buffer.data(), kernels, device);
    case Operation::kReducescatter:
      return scale_single(call, call.input, kernels, device);
    case Operation::kAllgather:
    case Operation::kAlltoall:
      if (call.buffer.bytes == 0 || call.input == call.buffer.data()) return {};
      return runtime.copy(device, call.buffer.data(), call.input, call.buffer.bytes, call.stream);
    default:
      return {};  // nobody to tell
  }
}

Result<RegionPtr> no_gpu_region(std::uint64_t /*key*/, std::size_t /*bytes*/) {
  return Status::unavailable("no memory of a GPU that its peers reach");
}

}  // namespace roundelay::collective
