// torch.distributed's reductions.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <vector>

#include "collective/call.h"
#include "process_group/tensors.h"

namespace roundelay::process_group {

// Returns whether the operator works on the bits of integers. The core has no sums of that kind: members
// bring the parts together, and each folds them.
[[nodiscard]] bool is_bitwise(const ::c10d::ReduceOp& op);
// Folds so many equal parts of a tensor of one dimension into the first one, which it returns.
at::Tensor fold(const at::Tensor& parts, int count, const ::c10d::ReduceOp& op);
// Returns the mark's form of such an operation.
[[nodiscard]] collective::CallMark::Form form_of(const ::c10d::ReduceOp& op);

// Sets the arithmetic of a call, and its mark's operator. `members`: the size of the group. Throws ValueError
// if the operator cannot reduce this type.
void set_reduction(collective::Reduction& reduction, collective::CallMark& mark, const ::c10d::ReduceOp& op,
                   at::ScalarType type, int members, const char* operation);

// Returns the memory of a reduction's input with what this member brings. PREMUL_SUM has a factor of each
// member's own, while those of a call's arithmetic are for all parts alike.
[[nodiscard]] Memory scaled(Memory input, const ::c10d::ReduceOp& op, DType dtype);

}  // namespace roundelay::process_group
