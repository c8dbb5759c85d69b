#include "collective/nccl/reduction.h"

#include <bit>

namespace roundelay::collective::nccl {
namespace {

bool is_unscaled(const Call& call) { return call.prescale.identity() && call.scale.identity(); }

// As bytes that are 0 or 1.
std::optional<Reduction> of_booleans(const Call& call) {
  if (!is_unscaled(call)) return std::nullopt;
  const bool any = call.reduce_op == ReduceOp::kSum || call.reduce_op == ReduceOp::kMax;
  Reduction how;
  how.wire = DType::kUInt8;
  how.reduction.op = any ? ReduceOp::kMax : ReduceOp::kMin;
  return how;
}

std::optional<Reduction> of_integers(const Call& call, int members) {
  Reduction how;
  how.reduction.op = call.reduce_op;
  how.after = call.scale;
  how.wire = platform::nccl_reduces(call.dtype) ? call.dtype : DType::kInt32;
  if (is_unscaled(call)) return how;
  // An average: the sum must not overflow, and the quotient is in the type's range. Other scales saturate in
  // ways that only the CPU's kernels have.
  const bool average = call.reduce_op == ReduceOp::kSum && call.prescale.identity() &&
                       call.scale.factor == 1.0 && call.scale.divisor >= members;
  if (!average) return std::nullopt;
  how.wire = size_of(call.dtype) < 4 ? DType::kInt32 : DType::kInt64;
  return how;
}

Reduction of_floats(const Call& call, int members) {
  Reduction how;
  how.wire = call.dtype;
  how.reduction.op = call.reduce_op;
  how.before = call.prescale;
  how.after = call.scale;
  const bool average = call.reduce_op == ReduceOp::kSum && call.scale == Scale{1.0, members};
  // A half's factor has too few bits, unless it is a power of two; then it also keeps the sum in range.
  const bool half = size_of(call.dtype) == 2;
  if (average && (!half || std::has_single_bit(static_cast<unsigned>(members)))) {
    how.reduction.average = true;
    how.after = {};
  }
  return how;
}

}  // namespace

std::optional<Reduction> reduction_of(const Call& call, int members) {
  if (call.reduce_op == ReduceOp::kAdasum) return std::nullopt;
  if (call.dtype == DType::kBool) return of_booleans(call);
  return is_floating(call.dtype) ? of_floats(call, members) : of_integers(call, members);
}

}  // namespace roundelay::collective::nccl
