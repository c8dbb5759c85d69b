#include "adapter/autograd.h"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

namespace roundelay::adapter {

bool compiled_autograd_runs() {
  namespace py = pybind11;
  const auto dynamo =
      py::reinterpret_steal<py::object>(PyImport_GetModule(py::str("torch._dynamo.compiled_autograd").ptr()));
  return dynamo && dynamo.attr("in_compiled_autograd_region").cast<bool>();
}

bool reducer_hooks(const at::Tensor& parameter) {
  const auto node = torch::autograd::impl::try_get_grad_accumulator(parameter);
  if (node == nullptr) return false;
  const auto& hooks = node->post_hooks();
  return std::any_of(hooks.begin(), hooks.end(), [](const auto& hook) {
    return dynamic_cast<const torch::autograd::utils::LambdaPostHook*>(hook.get()) != nullptr;
  });
}

}  // namespace roundelay::adapter
