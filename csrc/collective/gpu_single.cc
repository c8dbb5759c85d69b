#include "collective/gpu_single.h"

namespace roundelay::collective {
namespace {

// Enqueues a call of each kind on one device.
class Enqueuer {
 public:
  Enqueuer(GpuRuntime& runtime, kernels::GpuKernels& kernels, int device)
      : runtime_(runtime), kernels_(kernels), device_(device) {}

  Status operator()(const AllreduceCall& call) {
    return scale(call, call.buffer.data(), {call.buffer.data(), call.buffer.bytes}, call.stream);
  }
  Status operator()(const ReducescatterCall& call) {
    return scale(call, call.input, call.output, call.stream);
  }
  Status operator()(const AllgatherCall& call) { return copy(call.input, call.output, call.stream); }
  Status operator()(const AlltoallCall& call) { return copy(call.input, call.output, call.stream); }
  Status operator()(const BroadcastCall& /*call*/) { return {}; }
  Status operator()(const BarrierCall& /*call*/) { return {}; }

 private:
  Status scale(const Reduction& how, const std::byte* input, ByteSpan output, GpuStream stream) {
    const std::size_t count = output.size() / size_of(how.dtype);
    const bool unscaled = how.prescale.identity() && how.scale.identity();
    if (count == 0 || (unscaled && input == output.data())) return {};
    const std::byte* const part[] = {input};
    const ReduceOp op = how.reduce_op == ReduceOp::kAdasum ? ReduceOp::kSum : how.reduce_op;
    return kernels_.reduce_parts(device_, output.data(), part, count, how.dtype, op, how.prescale, how.scale,
                                 stream);
  }
  Status copy(const std::byte* input, ByteSpan output, GpuStream stream) {
    if (output.empty() || input == output.data()) return {};
    return runtime_.copy(device_, output.data(), input, output.size(), stream);
  }

  GpuRuntime& runtime_;
  kernels::GpuKernels& kernels_;
  const int device_;
};

}  // namespace

Status enqueue_single(const Call& call, GpuRuntime& runtime, kernels::GpuKernels& kernels, int device) {
  return std::visit(Enqueuer(runtime, kernels, device), call);
}

Result<RegionPtr> no_gpu_region(std::uint64_t /*key*/, std::size_t /*bytes*/) {
  return Status::unavailable("no memory of a GPU that its peers reach");
}

}  // namespace roundelay::collective
