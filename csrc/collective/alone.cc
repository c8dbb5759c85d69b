#include "collective/alone.h"

#include <cstring>

#include "kernels/kernels.h"

namespace roundelay::collective {
namespace {

void scale_alone(const Call& call, const ScatterList::Run& run) {
  const std::size_t count = run.bytes / size_of(call.dtype);
  const bool unscaled = call.prescale.identity() && call.scale.identity();
  if (count == 0 || (unscaled && run.input == run.output)) return;
  const void* const part[] = {run.input};
  const ReduceOp op = call.reduce_op == ReduceOp::kAdasum ? ReduceOp::kSum : call.reduce_op;
  kernels::reduce_parts(run.output, part, count, call.dtype, op, call.prescale, call.scale);
}

void allreduce_alone(const Call& call) {
  std::byte* const buffer = call.buffer.data();
  if (call.scattered == nullptr) return scale_alone(call, {buffer, buffer, call.buffer.bytes});
  call.scattered->for_each(0, call.buffer.bytes,
                           [&](std::size_t, const ScatterList::Run& run) { scale_alone(call, run); });
}

}  // namespace

void finish_alone(const Call& call) {
  switch (call.operation) {
    case Operation::kAllreduce:
      return allreduce_alone(call);
    case Operation::kReducescatter:
      return scale_alone(call, {call.input, call.buffer.data(), call.buffer.bytes});
    case Operation::kAllgather:
    case Operation::kAlltoall:
      if (call.buffer.bytes > 0) std::memmove(call.buffer.data(), call.input, call.buffer.bytes);
      return;
    default:
      return;  // nobody to tell, nobody to wait for
  }
}

}  // namespace roundelay::collective
