// Which tensors the core can work on, but for where they are: that is for adapter/accelerator.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "base/dtype.h"
#include "base/status.h"

namespace roundelay::adapter {

// `label` is what messages call it. Errors: kInvalidArgument, naming the tensor, what is wrong with it and
// the cure.
Status check_input(const at::Tensor& tensor, const std::string& label);
// `input` has passed check_input. `output` may be `input`.
Status check_output(const at::Tensor& input, const at::Tensor& output, const std::string& label);

// Of a tensor that passed check_input.
DType dtype_of(const at::Tensor& tensor);

}  // namespace roundelay::adapter
