#include "adapter/bucket.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "adapter/check.h"

namespace roundelay::adapter {

Bucket::Bucket(std::string name, GradientPool& pool, Submit submit, Levels levels, Accelerator& accelerator)
    : GradientGroup(std::move(name), accelerator),
      pool_(pool),
      submit_(std::move(submit)),
      levels_(std::move(levels)) {}

void Bucket::add(std::shared_ptr<Gradient> gradient, std::size_t entry) {
  const PoolRange range = pool_.range(entry);
  if (slots_.empty()) range_ = range;
  range_.bytes = range.offset + range.bytes - range_.offset;
  add_to_bucket(std::move(gradient), this);
  slots_.push_back({.entry = entry});
}

Result<at::Tensor> Bucket::copy_in(const Gradient& gradient, const at::Tensor& parameter) {
  const at::Tensor local = gradient.local(parameter);
  Result<at::Tensor> entry = pool_.fill(slots_[gradient.place().index].entry, local);
  if (!entry.ok()) return entry;
  const bool graph = local.defined() && local.requires_grad();  // `.grad` of a double backward stays
  if (entry->is_same(local) || graph || entry->scalar_type() != parameter.scalar_type()) return entry;
  if (entry->sizes() != parameter.sizes() || entry->device() != parameter.device()) {
    return Status::invalid(
        "a parameter has another shape or device than when its gradient pool was made: wrap its optimizer "
        "after such changes");
  }
  parameter.mutable_grad() = *entry;
  return entry;
}

Result<bool> Bucket::arrived(Gradient& gradient, const at::Tensor& parameter) {
  if (operations() > 0) return false;
  const at::Tensor local = gradient.local(parameter);
  if (local.defined()) {
    gradient.set_sparse(local.layout() != at::kStrided);
    const Result<at::Tensor> entry = copy_in(gradient, parameter);
    if (!entry.ok()) return entry.status();
  }
  const Result<bool> full = count_ready(gradient, parameter, kDense);
  if (!full.ok()) return full;
  if (*full) ROUNDELAY_RETURN_IF_ERROR(submit());
  return true;
}

Status Bucket::submit() {
  const Status sent = send_all();
  if (!sent.ok()) {
    drop_results();
    return sent;
  }
  turn_ = pool_.next_turn();
  try {
    in_flight_ = submit_(next_name(name()), range_, technique_.next());
    technique_.submitted();
  } catch (...) {
    drop_results();
    throw;
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].result.defined()) gradients()[i]->submitted();
  }
  return {};
}

Status Bucket::send_all() {
  const at::NoGradGuard no_grad;
  unmark_all();
  for (const auto& gradient : gradients()) ROUNDELAY_RETURN_IF_ERROR(send(*gradient));
  return wait_for_producers();
}

Status Bucket::send(Gradient& gradient) {
  Slot& slot = slots_[gradient.place().index];
  const at::Tensor parameter = gradient.parameter();
  if (!gradient.wanted(parameter)) return pool_.fill(slot.entry, {}).status();  // this rank needs no result
  const Result<at::Tensor> contribution = gradient.take(parameter);
  if (!contribution.ok()) return contribution.status();
  Result<at::Tensor> entry = copy_in(gradient, parameter);
  if (!entry.ok()) return entry.status();
  slot.result = parameter.grad().defined() ? parameter.grad() : at::zeros_like(parameter);
  if (!entry->is_same(slot.result)) slot.source = *std::move(entry);
  gradient.send(parameter, slot.result);
  return {};
}

Status Bucket::refuse_in_flight() const {
  if (!in_flight_) return {};
  return Status::unavailable("bucket '" + name() + "' is in flight: synchronize it first");
}

Status Bucket::set_technique(std::string_view text) {
  ROUNDELAY_RETURN_IF_ERROR(refuse_in_flight());
  const std::optional<DType> dtype = dtype_of(range_.type);
  if (!dtype) return Status::invalid("bucket '" + name() + "' has a dtype that the core cannot reduce");
  const std::size_t each = c10::elementSize(range_.type);
  BucketElements elements{pool_.device(), *dtype, range_.bytes / each, {}};
  elements.parameters.reserve(slots_.size());
  for (const Slot& slot : slots_) {
    const PoolRange place = pool_.range(slot.entry);
    elements.parameters.push_back({(place.offset - range_.offset) / each, place.bytes / each});
  }
  const Result<std::vector<int>> levels = levels_();
  if (!levels.ok()) return levels.status();
  ROUNDELAY_RETURN_IF_ERROR(technique_.choose(text, std::move(elements), *levels));
  return technique_state().status();
}

Status Bucket::set_run(std::uint64_t run) {
  ROUNDELAY_RETURN_IF_ERROR(refuse_in_flight());
  technique_.set_run(run);
  return {};
}

Status Bucket::rescale(double factor) {
  ROUNDELAY_RETURN_IF_ERROR(refuse_in_flight());
  technique_.rescale(factor);
  return technique_state().status();  // the next submit() waits for it
}

Result<at::Tensor> Bucket::technique_state() {
  const at::Tensor& state = technique_.state();
  if (state.defined()) ROUNDELAY_RETURN_IF_ERROR(note_producer(state));
  return state;
}

void Bucket::complete() {
  in_flight_.reset();
  technique_.complete(range_.bytes);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (!slot.result.defined()) continue;
    const at::Tensor result = std::exchange(slot.result, at::Tensor());
    const at::Tensor source = std::exchange(slot.source, at::Tensor());
    if (source.defined()) result.detach().copy_(source);
    gradients()[i]->complete(result);
  }
}

void Bucket::abandon() {
  if (in_flight_) technique_.fail();
  in_flight_.reset();
  drop_results();
}

void Bucket::drop_results() {
  for (Slot& slot : slots_) slot.result = slot.source = at::Tensor();
}

void Bucket::new_step() {
  GradientGroup::new_step();
  turn_ = 0;
}

}  // namespace roundelay::adapter
