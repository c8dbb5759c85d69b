// Checks whether the core can work on a tensor. Devices are checked in adapter/accelerator.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "base/dtype.h"
#include "base/status.h"

namespace roundelay::adapter {

// Checks an operation's input: its layout and dtype. `label` names the tensor in messages. Errors:
// kInvalidArgument, with the tensor, the problem and the cure.
Status check_input(const at::Tensor& tensor, const std::string& label);
// Checks an output for an input that has passed check_input(); both may be the same tensor. Errors: as
// check_input().
Status check_output(const at::Tensor& input, const at::Tensor& output, const std::string& label);

// Returns whether two of a tensor's elements share memory, as those of an expanded one do.
bool elements_overlap(const at::Tensor& tensor);

// Checks whether the core can reduce tensors of this type by `op`. Errors: as check_input().
Status check_reduction(at::ScalarType type, ReduceOp op, const std::string& label);

// Return the core's type for torch's; nothing if the core cannot work on it, or not add it up. The core knows
// no complex types.
std::optional<DType> dtype_of(at::ScalarType type);
std::optional<DType> reducible_dtype_of(at::ScalarType type);
// Returns the core's type for a tensor that has passed check_input(): a complex one travels as its real view,
// torch.view_as_real(), which has a further extent of 2.
DType dtype_of(const at::Tensor& tensor);

}  // namespace roundelay::adapter
