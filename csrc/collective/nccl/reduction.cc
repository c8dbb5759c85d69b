#include "collective/nccl/reduction.h"

#include <bit>

namespace roundelay::collective::nccl {
namespace {

bool is_unscaled(const Reduction& given) { return given.prescale.identity() && given.scale.identity(); }

// NCCL reduces booleans as bytes of 0 or 1.
std::optional<ReductionPlan> of_booleans(const Reduction& given) {
  if (!is_unscaled(given)) return std::nullopt;
  const bool any = given.reduce_op == ReduceOp::kSum || given.reduce_op == ReduceOp::kMax;
  ReductionPlan how;
  how.nccl_type = DType::kUInt8;
  how.reduction.op = any ? ReduceOp::kMax : ReduceOp::kMin;
  return how;
}

std::optional<ReductionPlan> of_integers(const Reduction& given, int members) {
  ReductionPlan how;
  how.reduction.op = given.reduce_op;
  how.after = given.scale;
  how.nccl_type = platform::nccl_reduces(given.dtype) ? given.dtype : DType::kInt32;
  if (is_unscaled(given)) return how;
  // In an average the sum must not overflow, and the quotient is in the type's range. Other scales saturate
  // in ways that only the CPU's kernels have.
  const bool average = given.reduce_op == ReduceOp::kSum && given.prescale.identity() &&
                       given.scale.factor == 1.0 && given.scale.divisor >= members;
  if (!average) return std::nullopt;
  how.nccl_type = size_of(given.dtype) < 4 ? DType::kInt32 : DType::kInt64;
  return how;
}

ReductionPlan of_floats(const Reduction& given, int members) {
  ReductionPlan how;
  how.nccl_type = given.dtype;
  how.reduction.op = given.reduce_op;
  how.before = given.prescale;
  how.after = given.scale;
  const bool average = given.reduce_op == ReduceOp::kSum && given.scale == Scale{1.0, members};
  // A half has too few bits for the factor, unless that is a power of two, which also keeps the sum in range.
  const bool half = size_of(given.dtype) == 2;
  if (average && (!half || std::has_single_bit(static_cast<unsigned>(members)))) {
    how.reduction.average = true;
    how.after = {};
  }
  return how;
}

}  // namespace

std::optional<ReductionPlan> reduction_of(const Reduction& given, int members) {
  if (given.reduce_op == ReduceOp::kAdasum) return std::nullopt;
  if (given.dtype == DType::kBool) return of_booleans(given);
  return is_floating(given.dtype) ? of_floats(given, members) : of_integers(given, members);
}

}  // namespace roundelay::collective::nccl
