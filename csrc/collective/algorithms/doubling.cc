#include "collective/algorithms/doubling.h"

#include "kernels/kernels.h"

namespace roundelay::collective {

DType working_type(const Reduction& how) {
  const bool widened = how.reduce_op == ReduceOp::kAdasum && size_of(how.dtype) < size_of(DType::kFloat32);
  return widened ? DType::kFloat32 : how.dtype;
}

void merge(const Reduction& how, std::byte* a, const std::byte* b, std::size_t count) {
  const DType dtype = working_type(how);
  if (how.reduce_op != ReduceOp::kAdasum) return kernels::reduce(a, b, count, dtype, how.reduce_op);
  const kernels::Dots dots = kernels::dots(a, b, count, dtype);
  // A zero vector takes nothing from the other.
  const double factor_a = dots.aa == 0 ? 1 : 1 - dots.ab / (2 * dots.aa);
  const double factor_b = dots.bb == 0 ? 1 : 1 - dots.ab / (2 * dots.bb);
  kernels::combine(a, factor_a, b, factor_b, count, dtype);
}

}  // namespace roundelay::collective
