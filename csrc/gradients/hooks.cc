#include "gradients/hooks.h"

#include <torch/csrc/autograd/graph_task.h>

#include "adapter/autograd.h"
#include "adapter/process.h"
#include "base/clock.h"
#include "timeline/timeline.h"

namespace roundelay::gradients {
namespace {

void mark(const Gradient& gradient, const at::Tensor& parameter) {
  const at::Tensor& local = parameter.grad();
  const auto context = adapter::current_context();
  if (!local.defined() || local.layout() != at::kStrided || !context.ok()) return;
  const auto elements = static_cast<std::uint64_t>(local.numel());
  const std::uint64_t rows = local.dim() > 0 ? static_cast<std::uint64_t>(local.size(0)) : 1;
  (*context)->timeline().record_gradient(
      {gradient.name(), elements, elements * static_cast<std::uint64_t>(local.element_size()), rows},
      steady_now());
}

}  // namespace

Status before_accumulation(Gradient& gradient, const at::Tensor& incoming) {
  ROUNDELAY_RETURN_IF_ERROR(gradient.expect(incoming));
  if (gradient.has_set_aside() && adapter::compiled_autograd_runs()) gradient.vacate();
  return {};
}

Status after_accumulation(const std::shared_ptr<Gradient>& gradient, Reducer& reducer,
                          const at::Tensor& parameter) {
  const HookRules& rules = reducer.rules();
  if (!gradient->count_pass(rules)) return {};
  if (rules.marking) mark(*gradient, parameter);
  return reducer.arrived(gradient, parameter);
}

void GradientMarks::after_accumulation(Gradient& gradient, const at::Tensor& parameter) {
  if (!gradient.count_pass(rules_)) return;
  mark(gradient, parameter);
  gradient.set_passes(0);  // as if a reduction had taken it
  backward_end().add(shared_from_this());
}

Status end_if_compiled() {
  if (!adapter::compiled_autograd_runs()) return {};
  return backward_end().ended(torch::autograd::get_current_graph_task_id());
}

}  // namespace roundelay::gradients
