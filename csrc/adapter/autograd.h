// Facts about torch's autograd that only Python knows. Call these functions with the GIL.
#pragma once

#include <ATen/core/Tensor.h>

namespace roundelay::adapter {

// Returns true if compiled autograd runs this backward.
bool compiled_autograd_runs();
// Returns true if a function of C++, which only DistributedDataParallel's reducer puts there, runs after the
// parameter's node.
bool reducer_hooks(const at::Tensor& parameter);

}  // namespace roundelay::adapter
