#include "gradients/contribution.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <vector>

#include "adapter/accelerator.h"

namespace roundelay::gradients {
namespace {

at::Tensor no_entries(const at::Tensor& parameter, std::int64_t dimensions) {
  const at::TensorOptions options = parameter.options().requires_grad(false);
  std::vector<std::int64_t> rows = parameter.sizes().slice(static_cast<std::size_t>(dimensions)).vec();
  rows.insert(rows.begin(), 0);
  return at::_sparse_coo_tensor_unsafe(at::empty({dimensions, 0}, options.dtype(at::kLong)),
                                       at::empty(rows, options), parameter.sizes(),
                                       options.layout(at::kSparse));
}

}  // namespace

at::Tensor copy_with_graph(const at::Tensor& gradient) {
  const at::AutoGradMode grad_mode(true);
  return gradient.clone();
}

Result<at::Tensor> dense_contribution(Gradient& gradient, const at::Tensor& parameter) {
  Result<at::Tensor> taken = gradient.take_contribution(parameter);
  if (!taken.ok()) return taken.status();
  if (!taken->defined()) return at::zeros_like(parameter);
  if (gradient.owns(*taken)) {
    gradient.send(parameter, *taken);
    return taken;
  }
  // Its memory may be another stream's, which goes on with it when `.grad` has let go of it.
  adapter::lend_to_current_stream(*taken);
  at::Tensor dense = taken->layout() == at::kStrided ? copy_with_graph(*taken) : taken->to_dense();
  gradient.send(parameter, dense);
  return dense;
}

Result<at::Tensor> sparse_contribution(Gradient& gradient, const at::Tensor& parameter,
                                       std::int64_t dimensions) {
  const Result<at::Tensor> taken = gradient.take_contribution(parameter);
  if (!taken.ok()) return taken.status();
  if (!taken->defined()) return no_entries(parameter, dimensions);
  const at::Tensor sparse = taken->layout() == at::kStrided ? taken->detach().to_sparse(dimensions) : *taken;
  gradient.send(parameter, sparse);
  return sparse.detach();
}

}  // namespace roundelay::gradients
