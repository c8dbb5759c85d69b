#include "gradients/gradient.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace roundelay::gradients {
namespace {

at::Tensor sum_of(const at::Tensor& total, const at::Tensor& result) {
  if (total.layout() != at::kStrided) return result.detach().add(total.detach());
  total.detach().add_(result.detach());
  return total;
}

// Returns true if the running graph task evaluates the parameter's node, which adds to `.grad`. A graph task
// of torch.autograd.grad() calls the parameter's hooks as well, but only captures what they return.
bool node_is_evaluated(const at::Tensor& parameter) {
  const auto* const info = torch::autograd::get_current_graph_task_exec_info();
  if (info == nullptr || info->empty()) return true;  // every node is evaluated
  const auto node = torch::autograd::impl::try_get_grad_accumulator(parameter);
  const auto found = info->find(node.get());
  return found == info->end() || found->second.needed_;
}

}  // namespace

Gradient::Gradient(const at::Tensor& parameter, std::string name, bool additive)
    : parameter_(parameter), name_(std::move(name)), additive_(additive) {}

Status Gradient::expect(const at::Tensor& incoming) {
  const at::Tensor tensor = parameter();
  // torch.autograd.grad() adds nothing. Another hook may have called it before this backward's is counted.
  if (!tensor.defined() || !node_is_evaluated(tensor)) return {};
  const bool was_expected = expected_;
  expected_ = incoming.defined() && tensor.requires_grad();
  if (expected_) drop_cleared(tensor, was_expected);
  return expected_ && state_ != GradientState::kLocal ? set_aside(tensor) : Status();
}

// The model's zero_grad(), which tells nobody, has cleared what was in flight, or came after a set_aside().
void Gradient::drop_cleared(const at::Tensor& parameter, bool was_expected) {
  if (parameter.grad().defined() || state_ == GradientState::kReduced) return;
  const bool in_flight = state_ == GradientState::kInFlight;
  if (!in_flight && (was_expected || passes_ == 0)) return;
  reduced_.reset();
  unwanted_ = reductions_;
  passes_ = 0;
  window_ = 0;
  state_ = GradientState::kLocal;
}

void Gradient::put_back() {
  if (!std::exchange(expected_, false) || reductions_ > 0 || !reduced_.defined()) return;
  publish();
}

void Gradient::vacate() {
  const at::NoGradGuard no_grad;
  const at::Tensor old = std::exchange(reduced_, reduced_.detach().clone());
  old.detach().zero_();
}

Status Gradient::set_aside(const at::Tensor& parameter) {
  if (!parameter.defined()) return {};
  const bool cleared = state_ == GradientState::kReduced && !parameter.grad().defined();
  if (!cleared && !additive_) {
    return Status::unavailable(
        name_ +
        ": a second backward before step() needs op=Average or Sum, as others of several contributions "
        "cannot be put together");
  }
  if (state_ == GradientState::kReduced && !cleared) reduced_ = parameter.grad();
  parameter.mutable_grad().reset();
  state_ = GradientState::kLocal;
  return {};
}

Result<at::Tensor> Gradient::take_contribution(const at::Tensor& parameter) {
  if (state_ == GradientState::kReduced) ROUNDELAY_RETURN_IF_ERROR(set_aside(parameter));
  passes_ = 0;
  return local(parameter);
}

void Gradient::send(const at::Tensor& parameter, const at::Tensor& tensor) {
  if (!parameter.grad().is_same(tensor)) parameter.mutable_grad() = tensor;
  sent_.emplace(tensor);
  state_ = GradientState::kInFlight;
}

void Gradient::complete(const at::Tensor& result) {
  if (unwanted_ > 0) {
    --unwanted_;
  } else {
    reduced_ = reduced_.defined() ? sum_of(reduced_, result) : result;
  }
  if (reductions_ > 0) --reductions_;
  if (reductions_ == 0 && reduced_.defined()) publish();
}

void Gradient::publish() {
  const bool dense = reduced_.layout() == at::kStrided;
  at::Tensor total =
      sparse_ && dense ? reduced_.detach().to_sparse() : reduced_;  // as its optimizer needs it
  const at::Tensor tensor = parameter();
  if (!tensor.defined()) return;
  if (state_ == GradientState::kLocal && tensor.grad().defined()) {
    reduced_ = std::move(total);  // `.grad` contains the next contribution
    return;
  }
  if (tensor.requires_grad() && !tensor.grad().is_same(total)) tensor.mutable_grad() = std::move(total);
  reduced_.reset();
  state_ = GradientState::kReduced;
}

void Gradient::new_step() {
  reduced_.reset();
  reductions_ = 0;
  unwanted_ = 0;
  passes_ = 0;
  window_ = 0;
  seen_ = false;
  state_ = GradientState::kLocal;
  left_.reset();
  if (const at::Tensor tensor = parameter(); tensor.defined() && tensor.grad().defined())
    left_.emplace(tensor.grad());
}

}  // namespace roundelay::gradients
