#include "collective/single.h"

#include <cstring>

#include "kernels/kernels.h"

namespace roundelay::collective {
namespace {

void scale_single(const Call& call, const ScatterList::Run& run) {
  const std::size_t count = run.bytes / size_of(call.dtype);
  const bool unscaled = call.prescale.identity() && call.scale.identity();
  if (count == 0 || (unscaled && run.input == run.output)) return;
  const void* const part[] = {run.input};
  const ReduceOp op = call.reduce_op == ReduceOp::kAdasum ? ReduceOp::kSum : call.reduce_op;
  kernels::reduce_parts(run.output, part, count, call.dtype, op, call.prescale, call.scale);
}

void allreduce_single(const Call& call) {
  std::byte* const buffer = call.buffer.data();
  if (call.scattered == nullptr) return scale_single(call, {buffer, buffer, call.buffer.bytes});
  call.scattered->for_each(0, call.buffer.bytes,
                           [&](std::size_t, const ScatterList::Run& run) { scale_single(call, run); });
}

}  // namespace

void finish_single(const Call& call) {
  switch (call.operation) {
    case Operation::kAllreduce:
      return allreduce_single(call);
    case Operation::kReducescatter:
      return scale_single(call, {call.input, call.buffer.data(), call.buffer.bytes});
    case Operation::kAllgather:
    case Operation::kAlltoall:
      if (call.buffer.bytes > 0) std::memmove(call.buffer.data(), call.input, call.buffer.bytes);
      return;
    default:
      return;  // nobody to tell, nobody to wait for
  }
}

}  // namespace roundelay::collective
