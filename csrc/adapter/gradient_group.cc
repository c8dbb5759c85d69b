#include "adapter/gradient_group.h"

#include <algorithm>
#include <utility>

namespace roundelay::adapter {

GradientGroup::GradientGroup(std::string name, Accelerator& accelerator)
    : name_(std::move(name)), accelerator_(accelerator) {}

GradientGroup::~GradientGroup() {
  for (const auto& gradient : gradients_) {
    if (gradient->place().group == this) gradient->set_place({});
  }
}

void GradientGroup::add(std::shared_ptr<Gradient> gradient) { add_to_bucket(std::move(gradient), nullptr); }

void GradientGroup::add_to_bucket(std::shared_ptr<Gradient> gradient, Bucket* bucket) {
  gradient->set_place({this, bucket, gradients_.size()});
  gradients_.push_back(std::move(gradient));
  kinds_.push_back(kNotReady);
}

Result<bool> GradientGroup::mark_ready(Gradient& gradient, Kind kind) {
  const at::Tensor parameter = gradient.parameter();
  const at::Tensor local = gradient.local(parameter);
  if (local.defined()) gradient.set_sparse(kind == kDense && local.layout() != at::kStrided);
  return count_ready(gradient, parameter, kind);
}

Result<bool> GradientGroup::count_ready(const Gradient& gradient, const at::Tensor& parameter, Kind kind) {
  if (gradient.place().group != this) return Status::internal("a gradient is ready in another one's group");
  if (ready_ == 0) {
    wanted_ = static_cast<std::size_t>(
        std::count_if(gradients_.begin(), gradients_.end(), [](const auto& one) { return one->wanted(); }));
  }
  Kind& own = kinds_[gradient.place().index];
  if (own == kNotReady) ++ready_;
  own = kind;
  if (parameter.defined()) ROUNDELAY_RETURN_IF_ERROR(producers_.note(parameter, accelerator_));
  const bool full =
      ready_ >= wanted_ && std::all_of(kinds_.begin(), kinds_.end(), [](Kind one) { return one <= kDense; });
  if (full) ++filled_;
  return full;
}

void GradientGroup::unmark(const Gradient& gradient) {
  if (gradient.place().group != this) return;
  Kind& own = kinds_[gradient.place().index];
  if (own != kNotReady) --ready_;
  own = kNotReady;
}

void GradientGroup::unmark_all() {
  std::fill(kinds_.begin(), kinds_.end(), kNotReady);
  ready_ = 0;
}

void GradientGroup::put_back() {
  for (const auto& gradient : gradients_) gradient->put_back();
}

std::vector<std::uint8_t> GradientGroup::wanted() const {
  std::vector<std::uint8_t> wanted;
  wanted.reserve(gradients_.size());
  for (const auto& gradient : gradients_) wanted.push_back(gradient->wanted() ? 1 : 0);
  return wanted;
}

std::vector<std::size_t> GradientGroup::overdue(int passes) const {
  std::vector<std::size_t> overdue;
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    const Gradient& gradient = *gradients_[i];
    if (gradient.passes() < passes || kinds_[i] != kNotReady) continue;
    const at::Tensor parameter = gradient.parameter();
    if (gradient.wanted(parameter) && gradient.local(parameter).defined()) overdue.push_back(i);
  }
  return overdue;
}

std::string GradientGroup::next_name(const std::string& name) {
  ++operations_;
  return operations_ == 1 ? name : name + ".pass" + std::to_string(operations_);
}

int GradientGroup::take_filled() { return std::exchange(filled_, 0); }

void GradientGroup::new_step() {
  for (const auto& gradient : gradients_) gradient->new_step();
  operations_ = filled_ = 0;
  unmark_all();
}

}  // namespace roundelay::adapter
