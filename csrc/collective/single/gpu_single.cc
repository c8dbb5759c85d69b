#include "collective/single/gpu_single.h"

namespace roundelay::collective {

Status enqueue_single(const Call& call, GpuRuntime& runtime, kernels::GpuKernels& kernels, int device) {
  const SingleWork work = std::visit([](const auto& one) { return one.single_work(); }, call);
  const GpuStream stream = options_of(call).stream;
  const bool in_place = work.input == work.output.data();
  if (work.output.empty()) return {};
  if (work.arithmetic == nullptr) {
    return in_place ? Status()
                    : runtime.copy(device, work.output.data(), work.input, work.output.size(), stream);
  }
  const Reduction& how = *work.arithmetic;
  const std::size_t count = work.output.size() / size_of(how.dtype);
  const bool unscaled = how.prescale.identity() && how.scale.identity();
  if (count == 0 || (unscaled && in_place)) return {};
  const std::byte* const part[] = {work.input};
  const ReduceOp op = how.reduce_op == ReduceOp::kAdasum ? ReduceOp::kSum : how.reduce_op;
  return kernels.reduce_parts(device, work.output.data(), part, count, how.dtype, op, how.prescale, how.scale,
                              stream);
}

Result<RegionPtr> no_gpu_region(std::uint64_t /*key*/, std::size_t /*bytes*/) {
  return Status::unavailable("no memory of a GPU that its peers reach");
}

}  // namespace roundelay::collective
