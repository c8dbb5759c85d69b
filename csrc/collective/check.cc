#include "collective/check.h"

#include <string>

namespace roundelay::collective {

Status check_call(const Call& call, int size) {
  const std::string what(name_of(call.operation));
  if (call.buffer.bytes > 0 && call.buffer.base == nullptr) {
    return Status::invalid(what + ": the buffer has no memory");
  }
  if (call.operation == Operation::kBroadcast && (call.root < 0 || call.root >= size)) {
    return Status::invalid(what + ": root " + std::to_string(call.root) + " is not in a group of " +
                           std::to_string(size));
  }
  if (call.operation != Operation::kAllreduce) return {};
  if (call.buffer.bytes % size_of(call.dtype) != 0) {
    return Status::invalid(what + ": " + std::to_string(call.buffer.bytes) +
                           " bytes are no whole number of " + std::string(name_of(call.dtype)));
  }
  if (call.reduce_op == ReduceOp::kAverage || call.reduce_op == ReduceOp::kAdasum) {
    return Status::invalid(what + ": no fabric reduces by " + std::string(name_of(call.reduce_op)));
  }
  if (call.scale.divisor == 0) return Status::invalid(what + ": the divisor is 0");
  return {};
}

}  // namespace roundelay::collective
