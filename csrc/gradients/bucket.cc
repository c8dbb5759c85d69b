#include "gradients/bucket.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "adapter/check.h"
#include "gradients/contribution.h"

namespace roundelay::gradients {

Bucket::Bucket(std::string name, std::shared_ptr<GradientPool> pool, std::shared_ptr<const Rule> rule)
    : GradientGroup(std::move(name), std::move(rule)), pool_(std::move(pool)) {}

void Bucket::add(std::shared_ptr<Gradient> gradient, std::size_t entry) {
  const PoolRange range = pool_->range(entry);
  if (slots_.empty()) range_ = range;
  range_.bytes = range.offset + range.bytes - range_.offset;
  add_to(std::move(gradient), this);
  slots_.push_back({.entry = entry});
  range_.entries = static_cast<std::uint32_t>(slots_.size());
}

// Copies or casts the contribution into its entry, unless the entry contains it. If both have one type, the
// entry becomes `.grad`.
Status Bucket::take_in(const Gradient& gradient, const at::Tensor& parameter) {
  const at::Tensor local = gradient.local(parameter);
  Slot& slot = slots_[gradient.place().index];
  if (slot.taken && slot.taken->current(local)) return {};
  if (!pool_->suits(slot.entry, parameter)) {
    return Status::invalid(
        "a parameter has another shape or device than when its gradient pool was made: wrap its optimizer "
        "after such changes");
  }
  const bool graph = local.defined() && local.requires_grad();  // `.grad` of a double backward stays
  if (graph || parameter.scalar_type() != range_.type) {
    ROUNDELAY_RETURN_IF_ERROR(pool_->write(slot.entry, local));
    slot.taken.emplace(local);
    return {};
  }
  const Result<at::Tensor> filled = pool_->fill(slot.entry, local);
  if (!filled.ok()) return filled.status();
  if (!filled->is_same(local)) parameter.mutable_grad() = *filled;
  return {};
}

Status Bucket::arrived(Gradient& gradient, const at::Tensor& parameter) {
  if (operations() > 0) return GradientGroup::arrived(gradient, parameter);
  const Result<Kind> sparse = sparse_dimensions(gradient, parameter);
  if (!sparse.ok()) return sparse.status();
  if (*sparse > 0) return GradientGroup::arrived(gradient, parameter);
  const at::Tensor local = gradient.local(parameter);
  if (local.defined()) {
    gradient.set_sparse(local.layout() != at::kStrided);
    ROUNDELAY_RETURN_IF_ERROR(take_in(gradient, parameter));
  }
  const Result<bool> full = mark_ready(gradient, parameter, kDense);
  if (!full.ok()) return full.status();
  return *full ? submit_in_pool() : Status();
}

Status Bucket::submit_all() { return operations() > 0 ? GradientGroup::submit_all() : submit_in_pool(); }

Status Bucket::submit_in_pool() {
  Status prepared = prepare_all();
  if (!prepared.ok()) {
    drop_results();
    return prepared;
  }
  number_in_step_ = pool_->count_submission();
  const Result<complete::Handle> handle =
      pool_->allreduce(range_, next_name(name()), rule().reduction, true, technique_.next());
  if (!handle.ok()) {
    drop_results();
    return handle.status();
  }
  in_flight_.emplace(*handle);
  technique_.submitted();
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
  ROUNDELAY_RETURN_IF_ERROR(wait_for_producers());
  if (rule().weights) rule().weights->weigh(pool_->elements(range_));
  return {};
}

Status Bucket::prepare(Gradient& gradient) {
  Slot& slot = slots_[gradient.place().index];
  const at::Tensor parameter = gradient.parameter();
  if (!gradient.wanted(parameter)) {  // this rank needs no result, but the operation writes one
    ROUNDELAY_RETURN_IF_ERROR(pool_->write(slot.entry, {}));
    Result<at::Tensor> filled = pool_->result(slot.entry, {});
    if (!filled.ok()) return filled.status();
    slot.source = *std::move(filled);
    return {};
  }
  const Result<at::Tensor> contribution = gradient.take_contribution(parameter);
  if (!contribution.ok()) return contribution.status();
  ROUNDELAY_RETURN_IF_ERROR(take_in(gradient, parameter));
  slot.taken.reset();
  return prepare_result(slot, parameter);
}

// The result is the tensor that the operation fills. If `.grad` has a graph, or the parameter has another
// type than when the pool was made, the result is copied into a tensor outside the pool.
Status Bucket::prepare_result(Slot& slot, const at::Tensor& parameter) {
  const at::Tensor& before = parameter.grad();
  Result<at::Tensor> filled = pool_->result(slot.entry, before);
  if (!filled.ok()) return filled.status();
  const bool graph = before.defined() && before.requires_grad();
  if (!graph && filled->scalar_type() == parameter.scalar_type()) {
    slot.result = *std::move(filled);
    return {};
  }
  slot.source = *std::move(filled);
  slot.result = before.defined() ? copy_with_graph(before) : at::zeros_like(parameter);
  return {};
}

Status Bucket::refuse_in_flight() const {
  if (!in_flight_) return {};
  return Status::unavailable("bucket '" + name() + "' is in flight: synchronize it first");
}

Status Bucket::set_technique(std::string_view text) {
  ROUNDELAY_RETURN_IF_ERROR(refuse_in_flight());
  const std::optional<DType> dtype = adapter::reducible_dtype_of(range_.type);
  if (!dtype) return Status::invalid("bucket '" + name() + "' has a dtype that the core cannot reduce");
  BucketElements elements{pool_->device(), *dtype, range_.count(), slices()};
  const Result<std::vector<int>> levels = pool_->level_sizes();
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

std::vector<compress::Slice> Bucket::slices() const {
  const std::size_t each = c10::elementSize(range_.type);
  std::vector<compress::Slice> slices;
  slices.reserve(slots_.size());
  for (const Slot& slot : slots_) {
    const PoolRange place = pool_->range(slot.entry);
    slices.push_back({(place.offset - range_.offset) / each, place.bytes / each});
  }
  return slices;
}

Scale Bucket::scale_over(int ranks) const {
  const auto& [op, before, after] = rule().reduction;
  if (op != static_cast<int>(ReduceOp::kAverage)) return {.factor = after};
  return average_of({.factor = before}, {.factor = after}, ranks);
}

std::optional<compress::SentChunks> Bucket::sent() const {
  return number_in_step_ > 0 && operations() == 1 ? technique_.sent() : std::nullopt;
}

Status Bucket::finish() {
  if (in_flight_) {
    ROUNDELAY_RETURN_IF_ERROR(in_flight_->wait());
    complete_all();
  }
  return GradientGroup::finish();
}

void Bucket::complete_all() {
  in_flight_.reset();
  technique_.complete(range_.bytes);
  pool_->completed();
  if (!technique_.text().empty()) pass_on_overflows();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const at::Tensor result = std::exchange(slot.result, at::Tensor());
    const at::Tensor source = std::exchange(slot.source, at::Tensor());
    if (!result.defined()) continue;
    if (source.defined()) {
      result.detach().copy_(source);
    } else if (!result.is_inference()) {
      result.unsafeGetTensorImpl()->bump_version();  // whoever reads it must notice the write
    }
    complete(i, result);
  }
}

// csc and topk mark an overflow in the first parameter of which they send parts, which may be frozen by now.
void Bucket::pass_on_overflows() {
  const at::NoGradGuard no_grad;
  const auto first_of = [](const at::Tensor& tensor) {
    return tensor.detach().as_strided({1}, {1}, tensor.storage_offset());
  };
  const auto wanted = std::ranges::find_if(slots_, [](const Slot& slot) { return slot.result.defined(); });
  if (wanted == slots_.end()) return;
  const at::Tensor& target = wanted->source.defined() ? wanted->source : wanted->result;
  for (const Slot& slot : slots_) {
    if (slot.result.defined() || !slot.source.defined()) continue;
    first_of(target).add_(first_of(slot.source).mul(0));
  }
}

void Bucket::abandon() {
  if (in_flight_) {
    const bool failed = !in_flight_->wait().ok();  // the first failure is being raised already
    technique_.fail();
    if (failed) restore_contributions();
    in_flight_.reset();
  }
  drop_results();
  GradientGroup::abandon();
}

// The operation has not touched a result that is no tensor of the pool.
void Bucket::restore_contributions() {
  for (const Slot& slot : slots_) {
    if (slot.result.defined() && !slot.source.defined()) pool_->restore(slot.entry);
  }
}

void Bucket::drop_results() {
  for (Slot& slot : slots_) {
    slot.result = slot.source = at::Tensor();
    slot.taken.reset();
  }
}

void Bucket::new_step() {
  GradientGroup::new_step();
  for (Slot& slot : slots_) slot.taken.reset();
  number_in_step_ = 0;
}

}  // namespace roundelay::gradients
