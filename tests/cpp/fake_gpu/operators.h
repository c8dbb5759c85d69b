#pragma once

#include <ATen/core/Tensor.h>

namespace roundelay::fake_gpu {

// Returns a copy of a dense tensor on the CPU, made when the current stream's work is done.
at::Tensor read(const at::Tensor& tensor);

}  // namespace roundelay::fake_gpu
