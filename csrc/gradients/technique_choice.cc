#include "gradients/technique_choice.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "compress/registry.h"
#include "wire/messages.h"

namespace roundelay::gradients {
namespace {

constexpr std::string_view kDense = "dense";

compress::BucketShape shape_of(const BucketElements& elements) {
  return {elements.count, elements.dtype, elements.parameters};
}

}  // namespace

// Operations in flight and tensors over the state share it. A thread without the GIL may destroy it: Python
// never sees `memory`.
struct TechniqueChoice::Chosen {
  at::Tensor memory;
  compress::BucketTechnique run, flush;
  compress::TechniqueOutcome outcome;  // of the last operation
};

TechniqueChoice::TechniqueChoice() = default;
TechniqueChoice::~TechniqueChoice() = default;

Status TechniqueChoice::choose(std::string_view text, BucketElements elements, std::span<const int> levels) {
  compress::TechniquePtr technique;
  std::string canonical;
  if (!text.empty() && text != kDense) {
    Result<compress::TechniquePtr> made = compress::make_technique(text);
    if (!made.ok()) return made.status();
    technique = std::move(made).value();
    canonical = technique->text();
  }
  if (canonical == text_) return {};
  if (unflushed()) {
    return Status::unavailable("technique '" + text_ +
                               "' may keep gradients that were not sent: submit the bucket with flush_next() "
                               "before another technique takes it");
  }
  std::shared_ptr<Chosen> chosen;
  if (technique) {
    ROUNDELAY_RETURN_IF_ERROR(technique->check(shape_of(elements)));
    Result<std::shared_ptr<Chosen>> made = prepare(std::move(technique), elements, levels);
    if (!made.ok()) return made.status();
    chosen = std::move(made).value();
  }
  state_ = at::Tensor();
  chosen_ = std::move(chosen);
  text_ = std::move(canonical);
  flush_text_ = text_ + std::string(wire::kFlush);
  elements_ = chosen_ ? std::move(elements) : BucketElements{};
  levels_.assign(levels.begin(), levels.end());
  used_ = flush_next_ = flushing_ = false;
  run_ = 0;
  last_run_.reset();
  if (!chosen_ || !chosen_->memory.defined()) return {};
  const c10::InferenceMode normal(false);
  state_ = at::from_blob(
      chosen_->memory.mutable_data_ptr(), chosen_->memory.sizes(), [chosen = chosen_](void*) {},
      chosen_->memory.options(), chosen_->memory.device());
  clean_version_ = state_._version();
  return {};
}

Result<std::shared_ptr<TechniqueChoice::Chosen>> TechniqueChoice::prepare(compress::TechniquePtr technique,
                                                                          const BucketElements& elements,
                                                                          std::span<const int> levels) const {
  const std::size_t bytes = technique->state_bytes(elements.count, elements.dtype, levels);
  auto chosen = std::make_shared<Chosen>();
  if (bytes > 0) {
    const c10::InferenceMode normal(false);
    const at::NoGradGuard no_grad;  // the other guard turns gradients on
    try {
      chosen->memory =
          at::zeros({static_cast<std::int64_t>(bytes)}, at::device(elements.device).dtype(at::kByte));
    } catch (const std::exception& error) {
      return Status::unavailable("no memory for the state of technique '" + technique->text() +
                                 "': " + error.what());
    }
  }
  auto* const data = bytes > 0 ? static_cast<std::byte*>(chosen->memory.mutable_data_ptr()) : nullptr;
  chosen->run.technique = std::move(technique);
  chosen->run.state = {data, bytes};
  chosen->run.parameters = elements.parameters;
  chosen->run.present = elements.present;
  chosen->run.outcome = &chosen->outcome;
  chosen->flush = chosen->run;
  chosen->flush.flush = true;
  return chosen;
}

bool TechniqueChoice::unflushed() const {
  return state_.defined() && (used_ || state_._version() != clean_version_);
}

compress::Residual TechniqueChoice::residual(const Scale& scale, const compress::Place& place) const {
  if (!chosen_) return {};
  return chosen_->run.technique->residual(elements_.count, scale, place);
}

void TechniqueChoice::rescale(double factor) {
  if (!chosen_) return;
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;
  const DType type = kernels::residual_type(elements_.dtype);
  const at::ScalarType as = type == DType::kFloat64 ? at::kDouble : at::kFloat;
  const auto bytes = chosen_->run.technique->kept_numbers(elements_.count, levels_) * size_of(type);
  // The version of `state_` stays: a state of zeros remains clear.
  if (bytes > 0) chosen_->memory.narrow(0, 0, static_cast<std::int64_t>(bytes)).view(as).mul_(factor);
}

std::optional<compress::SentChunks> TechniqueChoice::sent() const {
  if (!last_run_) return std::nullopt;
  return chosen_->run.technique->sent(shape_of(elements_), *last_run_);
}

at::Tensor TechniqueChoice::sent_indices(const compress::SentChunks& sent) const {
  const c10::InferenceMode normal(false);
  const auto bytes = static_cast<std::int64_t>(sent.indices * sizeof(std::uint32_t));
  return chosen_->memory.narrow(0, static_cast<std::int64_t>(sent.indices_at), bytes).view(at::kInt);
}

TechniqueUse TechniqueChoice::next() {
  if (!chosen_) return {};
  chosen_->outcome = {};
  chosen_->run.run = run_;
  return {flush_next_ ? flush_text_ : text_, {chosen_, flush_next_ ? &chosen_->flush : &chosen_->run}};
}

void TechniqueChoice::complete(std::size_t bytes) {
  last_run_.reset();
  if (!applied()) return count(kDense, bytes, bytes);
  count(text_, bytes, chosen_->outcome.called_bytes);
  used_ = !flushing_;
  if (!flushing_) last_run_ = run_;
  next_run();
  if (flushing_ && state_.defined()) clean_version_ = state_._version();
}

void TechniqueChoice::fail() {
  used_ = true;
  last_run_.reset();
  if (applied()) next_run();
}

bool TechniqueChoice::applied() const { return chosen_ && chosen_->outcome.applied; }

void TechniqueChoice::count(std::string_view technique, std::size_t bytes, std::size_t called_bytes) {
  auto row = std::find_if(traffic_.begin(), traffic_.end(),
                          [&](const TechniqueTraffic& one) { return one.technique == technique; });
  if (row == traffic_.end()) row = traffic_.insert(row, {std::string(technique)});
  ++row->operations;
  row->bytes += static_cast<std::int64_t>(bytes);
  row->called_bytes += static_cast<std::int64_t>(called_bytes);
}

}  // namespace roundelay::gradients
