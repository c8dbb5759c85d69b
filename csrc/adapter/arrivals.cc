#include "adapter/arrivals.h"

#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

namespace roundelay::adapter {

at::Tensor Arrival::locked() const {
  auto impl = parameter.lock();
  return impl ? at::Tensor(std::move(impl)) : at::Tensor();
}

bool Arrival::wanted() const {
  if (replaced) return false;
  const at::Tensor tensor = locked();
  return tensor.defined() && tensor.requires_grad();
}

bool Arrival::arrive(const ArrivalRules& rules, const at::Tensor& tensor, Accelerator& accelerator) {
  ++accumulated;
  if (accumulated < rules.passes_per_step || rules.holding_back > 0) return true;
  if (rules.recording || rules.noted_in < 0) return false;
  if (rules.noted_in != torch::autograd::get_current_graph_task_id()) return false;
  return group != nullptr && group->take_in_one_of_many(*this, tensor, accelerator);
}

Arrivals::~Arrivals() {
  for (const auto& member : members_) {
    if (member->group == this) member->group = nullptr;
  }
}

void Arrivals::add(std::shared_ptr<Arrival> gradient, std::size_t entry) {
  gradient->group = this;
  gradient->entry = entry;
  gradient->kind = 0;
  members_.push_back(std::move(gradient));
}

void Arrivals::begin() {
  expected_ = static_cast<std::size_t>(
      std::count_if(members_.begin(), members_.end(), [](const auto& member) { return member->wanted(); }));
}

Result<bool> Arrivals::note(Arrival& gradient, int kind, Accelerator& accelerator) {
  if (here_ == 0) begin();
  if (gradient.kind == 0) ++here_;
  gradient.kind = kind;
  const at::Tensor parameter = gradient.locked();
  if (parameter.defined()) ROUNDELAY_RETURN_IF_ERROR(producers_.note(parameter, accelerator));
  return here_ >= expected_ && std::all_of(members_.begin(), members_.end(),
                                           [](const auto& member) { return member->kind <= kDense; });
}

void Arrivals::leave(Arrival& gradient) {
  if (gradient.kind != 0) --here_;
  gradient.kind = 0;
}

void Arrivals::clear() {
  if (here_ == 0) return;
  for (const auto& member : members_) {
    if (member->group == this) member->kind = 0;
  }
  here_ = 0;
}

Result<at::Tensor> Arrivals::take_in(Arrival& gradient, const at::Tensor& parameter) {
  if (pool_ == nullptr) return Status::invalid("a group without a pool takes nothing in");
  const at::Tensor local = gradient.holds == Holds::kLocal ? parameter.grad() : at::Tensor();
  Result<at::Tensor> entry = pool_->fill(gradient.entry, local);
  if (!entry.ok()) return entry;
  const bool graph = local.defined() && local.requires_grad();  // of a double backward: it stays
  if (entry->is_same(local) || graph || entry->scalar_type() != parameter.scalar_type()) return entry;
  if (entry->sizes() != parameter.sizes() || entry->device() != parameter.device()) {
    return Status::invalid(
        "a parameter has another shape or device than when its gradient pool was made: wrap its optimizer "
        "after such changes");
  }
  parameter.mutable_grad() = *entry;
  return entry;
}

bool Arrivals::take_in_one_of_many(Arrival& gradient, const at::Tensor& parameter, Accelerator& accelerator) {
  if (pool_ == nullptr || passes > 0 || gradient.kind != 0 || gradient.holds != Holds::kLocal) return false;
  const at::Tensor& local = parameter.grad();
  if (!local.defined() || local.layout() != at::kStrided || local.requires_grad()) return false;
  if (here_ == 0) begin();
  if (here_ + 1 >= expected_) return false;
  if (!take_in(gradient, parameter).ok() || !producers_.note(parameter, accelerator).ok()) return false;
  gradient.kind = kDense;
  ++here_;
  return true;
}

bool Arrivals::departs(Arrival& gradient) const {
  const at::Tensor parameter = gradient.locked();
  if (gradient.replaced || !parameter.defined() || !parameter.requires_grad()) return false;
  if (gradient.holds != Holds::kLocal || !pool_->holds(gradient.entry, parameter.grad())) return false;
  gradient.in_flight = parameter.grad();
  gradient.holds = Holds::kFlight;
  gradient.accumulated = 0;
  return true;
}

std::vector<std::size_t> Arrivals::depart() {
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (!departs(*members_[i])) others.push_back(i);
  }
  clear();
  return others;
}

}  // namespace roundelay::adapter
