#include "collective/single.h"

#include <cstring>

#include "kernels/kernels.h"

namespace roundelay::collective {
namespace {

void scale_single(const Reduction& how, const ScatterList::Run& run) {
  const std::size_t count = run.bytes / size_of(how.dtype);
  const bool unscaled = how.prescale.identity() && how.scale.identity();
  if (count == 0 || (unscaled && run.input == run.output)) return;
  const void* const part[] = {run.input};
  const ReduceOp op = how.reduce_op == ReduceOp::kAdasum ? ReduceOp::kSum : how.reduce_op;
  kernels::reduce_parts(run.output, part, count, how.dtype, op, how.prescale, how.scale);
}

void move_alone(const std::byte* input, ByteSpan output) {
  if (!output.empty()) std::memmove(output.data(), input, output.size());
}

void finish(const AllreduceCall& call) {
  std::byte* const buffer = call.buffer.data();
  if (call.scattered == nullptr) return scale_single(call, {buffer, buffer, call.buffer.bytes});
  call.scattered->for_each(0, call.buffer.bytes,
                           [&](std::size_t, const ScatterList::Run& run) { scale_single(call, run); });
}
void finish(const ReducescatterCall& call) {
  scale_single(call, {call.input, call.output.data(), call.output.size()});
}
void finish(const AllgatherCall& call) { move_alone(call.input, call.output); }
void finish(const AlltoallCall& call) { move_alone(call.input, call.output); }
void finish(const BroadcastCall& /*call*/) {}
void finish(const BarrierCall& /*call*/) {}

}  // namespace

void finish_single(const Call& call) {
  std::visit([](const auto& one) { finish(one); }, call);
}

}  // namespace roundelay::collective
