#include "process_group/reduction.h"

#include <ATen/Functions.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "adapter/check.h"
#include "process_group/errors.h"

namespace roundelay::process_group {
namespace {

using ::c10d::ReduceOp;

// Returns the factor by which this member scales its part.
double premultiplier(const ReduceOp& op) {
  // The name before PyTorch 2.13, which later ones have, too.
  const auto* const supplement = dynamic_cast<const ::c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (supplement == nullptr) refuse("PREMUL_SUM has no factor");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>()
                                             : supplement->double_factor;
}

roundelay::ReduceOp core_op(const ReduceOp& op, const char* operation) {
  switch (op.op_) {
    case ReduceOp::SUM:
    case ReduceOp::PREMUL_SUM:
      return roundelay::ReduceOp::kSum;
    case ReduceOp::AVG:
      return roundelay::ReduceOp::kAverage;
    case ReduceOp::PRODUCT:
      return roundelay::ReduceOp::kProduct;
    case ReduceOp::MIN:
      return roundelay::ReduceOp::kMin;
    case ReduceOp::MAX:
      return roundelay::ReduceOp::kMax;
    default:
      refuse(std::string(operation) + ": unknown ReduceOp");
  }
}

}  // namespace

bool is_bitwise(const ReduceOp& op) {
  return op.op_ == ReduceOp::BAND || op.op_ == ReduceOp::BOR || op.op_ == ReduceOp::BXOR;
}

collective::CallMark::Form form_of(const ReduceOp& op) {
  using Form = collective::CallMark::Form;
  return op.op_ == ReduceOp::BAND ? Form::kAnd : op.op_ == ReduceOp::BOR ? Form::kOr : Form::kXor;
}

at::Tensor fold(const at::Tensor& parts, int count, const ReduceOp& op) {
  const std::int64_t each = parts.numel() / count;
  at::Tensor sum = parts.narrow(0, 0, each);
  for (int i = 1; i < count; ++i) {
    const at::Tensor part = parts.narrow(0, i * each, each);
    if (op.op_ == ReduceOp::BAND) sum.bitwise_and_(part);
    if (op.op_ == ReduceOp::BOR) sum.bitwise_or_(part);
    if (op.op_ == ReduceOp::BXOR) sum.bitwise_xor_(part);
  }
  return sum;
}

void set_reduction(collective::Reduction& reduction, collective::CallMark& mark, const ReduceOp& op,
                   at::ScalarType type, int members, const char* operation) {
  const auto fail = [&](const std::string& why) {
    refuse(std::string(operation) + ": " + why + " " + c10::toString(type));
  };
  const roundelay::ReduceOp own = core_op(op, operation);
  const auto dtype = adapter::reducible_dtype_of(c10::toRealValueType(type));
  if (!dtype) fail("no ReduceOp takes tensors of");
  const bool adds = own == roundelay::ReduceOp::kSum || own == roundelay::ReduceOp::kAverage;
  if (c10::isComplexType(type) && !adds) fail("only SUM, AVG and PREMUL_SUM take tensors of");
  if (own == roundelay::ReduceOp::kAverage && !is_floating(*dtype)) fail("AVG takes no tensors of");
  reduction.dtype = *dtype;
  reduction.reduce_op = own == roundelay::ReduceOp::kAverage ? roundelay::ReduceOp::kSum : own;
  if (own == roundelay::ReduceOp::kAverage) reduction.scale.divisor = members;
  mark.reduce_op = own;
  mark.dtype = marked_type(type);
}

Memory scaled(Memory input, const ReduceOp& op, DType dtype) {
  if (op.op_ == ReduceOp::PREMUL_SUM) input.multiply(dtype, premultiplier(op));
  return input;
}

}  // namespace roundelay::process_group
