#include "adapter/bucket.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "adapter/check.h"

namespace roundelay::adapter {

Bucket::Taken::Taken(const at::Tensor& contribution) {
  if (!contribution.defined() || contribution.is_inference()) return;  // without a version
  tensor_ = c10::weak_intrusive_ptr<c10::TensorImpl>(contribution.getIntrusivePtr());
  version_ = contribution._version();
}

bool Bucket::Taken::is(const at::Tensor& contribution) const {
  return contribution.defined() && tensor_._unsafe_get_target() == contribution.unsafeGetTensorImpl() &&
         contribution._version() == version_;
}

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

// Copies or casts the contribution into its entry, unless the entry contains it. If both have one type, the
// entry becomes `.grad`.
Status Bucket::take_in(const Gradient& gradient, const at::Tensor& parameter) {
  const at::Tensor local = gradient.local(parameter);
  Slot& slot = slots_[gradient.place().index];
  if (slot.taken.is(local)) return {};
  if (!pool_.suits(slot.entry, parameter)) {
    return Status::invalid(
        "a parameter has another shape or device than when its gradient pool was made: wrap its optimizer "
        "after such changes");
  }
  const bool graph = local.defined() && local.requires_grad();  // `.grad` of a double backward stays
  if (graph || parameter.scalar_type() != range_.type) {
    ROUNDELAY_RETURN_IF_ERROR(pool_.write(slot.entry, local));
    slot.taken = Taken(local);
    return {};
  }
  const Result<at::Tensor> filled = pool_.fill(slot.entry, local);
  if (!filled.ok()) return filled.status();
  if (!filled->is_same(local)) parameter.mutable_grad() = *filled;
  return {};
}

Result<bool> Bucket::arrived(Gradient& gradient, const at::Tensor& parameter) {
  if (operations() > 0) return false;
  const at::Tensor local = gradient.local(parameter);
  if (local.defined()) {
    gradient.set_sparse(local.layout() != at::kStrided);
    ROUNDELAY_RETURN_IF_ERROR(take_in(gradient, parameter));
  }
  Result<bool> full = count_ready(gradient, parameter, kDense);
  if (!full.ok()) return full;
  if (*full) ROUNDELAY_RETURN_IF_ERROR(submit());
  return true;
}

Status Bucket::submit() {
  Status prepared = prepare_all();
  if (!prepared.ok()) {
    drop_results();
    return prepared;
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
    if (!slots_[i].result.defined()) continue;
    Gradient& gradient = *gradients()[i];
    gradient.send(gradient.parameter(), slots_[i].result);
    gradient.submitted();
  }
  return {};
}

Status Bucket::prepare_all() {
  const at::NoGradGuard no_grad;
  unmark_all();
  for (const auto& gradient : gradients()) ROUNDELAY_RETURN_IF_ERROR(prepare(*gradient));
  return wait_for_producers();
}

Status Bucket::prepare(Gradient& gradient) {
  Slot& slot = slots_[gradient.place().index];
  const at::Tensor parameter = gradient.parameter();
  if (!gradient.wanted(parameter)) {  // this rank needs no result, but the operation writes one
    ROUNDELAY_RETURN_IF_ERROR(pool_.write(slot.entry, {}));
    return pool_.result(slot.entry, {}).status();
  }
  const Result<at::Tensor> contribution = gradient.take(parameter);
  if (!contribution.ok()) return contribution.status();
  ROUNDELAY_RETURN_IF_ERROR(take_in(gradient, parameter));
  slot.taken = {};
  return prepare_result(slot, parameter);
}

// The result is the tensor that the operation fills. If `.grad` has a graph, or the parameter has another
// type than when the pool was made, the result is copied into a tensor outside the pool.
Status Bucket::prepare_result(Slot& slot, const at::Tensor& parameter) {
  const at::Tensor& before = parameter.grad();
  Result<at::Tensor> filled = pool_.result(slot.entry, before);
  if (!filled.ok()) return filled.status();
  const bool graph = before.defined() && before.requires_grad();
  if (!graph && filled->scalar_type() == parameter.scalar_type()) {
    slot.result = *std::move(filled);
    return {};
  }
  slot.source = *std::move(filled);
  slot.result = before.defined() ? before : at::zeros_like(parameter);
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
  BucketElements elements{pool_.device(), *dtype, range_.count(), {}};
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
  pool_.completed();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (!slot.result.defined()) continue;
    const at::Tensor result = std::exchange(slot.result, at::Tensor());
    const at::Tensor source = std::exchange(slot.source, at::Tensor());
    if (source.defined()) {
      result.detach().copy_(source);
    } else if (!result.is_inference()) {
      result.unsafeGetTensorImpl()->bump_version();  // whoever reads it must notice the write
    }
    gradients()[i]->complete(result);
  }
}

void Bucket::abandon(bool failed) {
  if (in_flight_) technique_.fail();
  if (in_flight_ && failed) restore_contributions();
  in_flight_.reset();
  drop_results();
}

// The operation has not touched a result that is no tensor of the pool.
void Bucket::restore_contributions() {
  for (const Slot& slot : slots_) {
    if (slot.result.defined() && !slot.source.defined()) pool_.restore(slot.entry);
  }
}

void Bucket::drop_results() {
  for (Slot& slot : slots_) {
    slot.result = slot.source = at::Tensor();
    slot.taken = {};
  }
}

void Bucket::new_step() {
  GradientGroup::new_step();
  for (Slot& slot : slots_) slot.taken = {};
  turn_ = 0;
}

}  // namespace roundelay::adapter
