#include "adapter/gradient.h"

#include <torch/csrc/autograd/graph_task.h>

#include <utility>

namespace roundelay::adapter {
namespace {

at::Tensor sum_of(const at::Tensor& total, const at::Tensor& result) {
  if (total.layout() != at::kStrided) return result.detach().add(total.detach());
  total.detach().add_(result.detach());
  return total;
}

}  // namespace

bool HookRules::skip_python() const {
  return !recording && graph_task >= 0 && graph_task == torch::autograd::get_current_graph_task_id();
}

Gradient::Gradient(const at::Tensor& parameter, std::string name, bool additive)
    : parameter_(parameter.getIntrusivePtr()),
      owner_(c10::intrusive_ptr<c10::TensorImpl>()),
      name_(std::move(name)),
      additive_(additive) {}

at::Tensor Gradient::parameter() const {
  auto impl = parameter_.lock();
  return impl ? at::Tensor(std::move(impl)) : at::Tensor();
}

at::Tensor Gradient::result_owner(const at::Tensor& parameter) const {
  auto impl = owner_.lock();
  return impl ? at::Tensor(std::move(impl)) : parameter;
}

Status Gradient::set_aside(const at::Tensor& parameter) {
  if (!parameter.defined()) return {};
  const at::Tensor owner = result_owner(parameter);
  const bool cleared = state_ == GradientState::kReduced && !owner.grad().defined();
  if (!cleared && !additive_) {
    return Status::unavailable(
        name_ +
        ": a second backward before step() needs op=Average or Sum, as others of several contributions "
        "cannot be put together");
  }
  if (state_ == GradientState::kReduced && !cleared) reduced_ = owner.grad();
  parameter.mutable_grad().reset();
  state_ = GradientState::kLocal;
  return {};
}

Result<at::Tensor> Gradient::take(const at::Tensor& parameter) {
  if (state_ == GradientState::kReduced) ROUNDELAY_RETURN_IF_ERROR(set_aside(parameter));
  passes_ = 0;
  return local(parameter);
}

void Gradient::send(const at::Tensor& parameter, const at::Tensor& tensor) {
  const bool own = result_owner(parameter).is_same(parameter);
  if (own && !parameter.grad().is_same(tensor)) parameter.mutable_grad() = tensor;
  state_ = GradientState::kInFlight;
}

void Gradient::complete(const at::Tensor& result) {
  const at::Tensor tensor = parameter();
  const at::Tensor owner = result_owner(tensor);
  const bool same = !owner.defined() || owner.scalar_type() == result.scalar_type();
  const at::Tensor own = same ? result : result.detach().to(owner.scalar_type());
  reduced_ = reduced_.defined() ? sum_of(reduced_, own) : own;
  if (reductions_ > 0) --reductions_;
  if (reductions_ == 0) publish(tensor, owner);
}

void Gradient::publish(const at::Tensor& parameter, const at::Tensor& owner) {
  const bool dense = reduced_.layout() == at::kStrided;
  at::Tensor total =
      sparse_ && dense ? reduced_.detach().to_sparse() : reduced_;  // as its optimizer needs it
  if (!parameter.defined()) return;
  if (state_ == GradientState::kLocal && parameter.grad().defined()) {
    reduced_ = std::move(total);  // `.grad` contains the next contribution
    return;
  }
  if (parameter.requires_grad() && !owner.grad().is_same(total)) owner.mutable_grad() = std::move(total);
  if (!owner.is_same(parameter)) parameter.mutable_grad().reset();
  reduced_.reset();
  state_ = GradientState::kReduced;
}

void Gradient::new_step() {
  reduced_.reset();
  reductions_ = 0;
  passes_ = 0;
  state_ = GradientState::kLocal;
}

}  // namespace roundelay::adapter
