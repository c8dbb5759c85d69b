#pragma once

#include <ATen/core/Tensor.h>

namespace roundelay::fake_gpu {

// A copy on the CPU of a dense tensor, behind what is in the current stream.
at::Tensor read(const at::Tensor& tensor);

}  // namespace roundelay::fake_gpu
