// Takes this rank's contribution out of a gradient, for a reduction outside of a pool.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "base/status.h"
#include "gradients/gradient.h"

namespace roundelay::gradients {

// Copies a gradient. If it has a graph, as after create_graph=True, so has the copy.
at::Tensor copy_with_graph(const at::Tensor& gradient);

// Callers hold the GIL. `parameter` is the gradient's, and exists. Errors: those of
// Gradient::take_contribution().

// Returns `.grad`, made dense, which is in flight then; zeros like the parameter if there is none. A tensor
// that autograd has put there is copied: backward may still read its memory, or another gradient lie in it.
Result<at::Tensor> dense_contribution(Gradient& gradient, const at::Tensor& parameter);
// Returns `.grad` as a tensor that is sparse in `dimensions` dimensions; an empty one if there is none.
Result<at::Tensor> sparse_contribution(Gradient& gradient, const at::Tensor& parameter,
                                       std::int64_t dimensions);

}  // namespace roundelay::gradients
