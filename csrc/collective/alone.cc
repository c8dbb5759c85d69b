#include "collective/alone.h"

#include <cstring>

#include "kernels/kernels.h"

namespace roundelay::collective {
namespace {

void scale_alone(const Call& call, const std::byte* input) {
  const std::size_t count = call.buffer.bytes / size_of(call.dtype);
  const bool unscaled = call.prescale.identity() && call.scale.identity();
  if (count == 0 || (unscaled && input == call.buffer.data())) return;
  const void* const part[] = {input};
  const ReduceOp op = call.reduce_op == ReduceOp::kAdasum ? ReduceOp::kSum : call.reduce_op;
  kernels::reduce_parts(call.buffer.data(), part, count, call.dtype, op, call.prescale, call.scale);
}

}  // namespace

void finish_alone(const Call& call) {
  switch (call.operation) {
    case Operation::kAllreduce:
      return scale_alone(call, call.buffer.data());
    case Operation::kReducescatter:
      return scale_alone(call, call.input);
    case Operation::kAllgather:
    case Operation::kAlltoall:
      if (call.buffer.bytes > 0) std::memmove(call.buffer.data(), call.input, call.buffer.bytes);
      return;
    default:
      return;  // nobody to tell, nobody to wait for
  }
}

}  // namespace roundelay::collective
