#include "gradients/reducer.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "adapter/autograd.h"
#include "adapter/operand.h"
#include "adapter/process.h"
#include "adapter/submission.h"
#include "adapter/waiting.h"
#include "timeline/timeline.h"

namespace roundelay::gradients {
namespace {

constexpr const char* kCompiledAutograd =
    "compiled autograd does not tell when a backward ends, so that gradients cannot be complete then: put "
    "backward() into `with optimizer.no_sync():`, and step() reduces them, or synchronize() before you clip";

bool any_but_equal(const std::vector<AgreementField>& fields, std::string_view values) {
  for (const AgreementField& field : fields) {
    const std::string_view value = values.substr(0, field.bytes);
    values.remove_prefix(field.bytes);
    if (field.merge != Merge::kEqual && value.find_first_not_of('\0') != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

Reducer::Reducer(Order order, std::string prefix, std::shared_ptr<const Rule> rule, int root,
                 std::unique_ptr<Policy> policy)
    : order_(order),
      prefix_(std::move(prefix)),
      root_(root),
      policy_(std::move(policy)),
      rule_(std::move(rule)) {}

Reducer::~Reducer() = default;

void Reducer::set_policy(std::vector<AgreementField> fields, std::string values, bool always) {
  policy_fields_ = std::move(fields);
  policy_values_ = std::move(values);
  policy_always_ = always;
}

// -- backward

Status Reducer::arrived(const std::shared_ptr<Gradient>& gradient, const at::Tensor& parameter) {
  if (graph_task_ < 0 || graph_task_ != torch::autograd::get_current_graph_task_id())
    ROUNDELAY_RETURN_IF_ERROR(join_backward());
  if (recording_) ready_times_.emplace_back(gradient, steady_now());
  GradientGroup* const group = gradient->place().group;
  return group == nullptr ? Status() : group->arrived(*gradient, parameter);
}

Status Reducer::join_backward() {
  if (adapter::compiled_autograd_runs()) {  // peers may wait in the next round
    const std::string name = prefix_ + ".agreement" + std::to_string(rounds_ + 1);
    return adapter::refuse(rule_->process_set, adapter::request_of(Operation::kAgreement, name),
                           Status::invalid(kCompiledAutograd));
  }
  graph_task_ = backward_end().add(shared_from_this());
  return {};
}

bool Reducer::backward_ended() {
  graph_task_ = -1;
  return groups_.has_submitted();
}

// -- step()

Status Reducer::synchronize() {
  groups_.put_back();
  // A step's first round includes gradients that were made without backward().
  ROUNDELAY_RETURN_IF_ERROR(groups_.submit_overdue(rounds_ > 0 ? 1 : 0, true));
  while (open()) {
    const auto context = adapter::current_context();
    if (!context.ok()) return context.status();
    const adapter::Waiting waiting(**context);
    ROUNDELAY_RETURN_IF_ERROR(begin_round(true, true));
    ROUNDELAY_RETURN_IF_ERROR(end_round());
  }
  return {};
}

bool Reducer::open() const { return groups_.has_submitted() || !(groups_.complete() || all_final_); }

void Reducer::new_step() {
  groups_.new_step();
  if (rule_->weights) rule_->weights->end_round();
  ready_times_.clear();
  rounds_ = 0;
  all_final_ = false;
}

void Reducer::abandon() {
  if (in_flight_) (void)in_flight_->wait();  // the first failure is being raised already
  in_flight_.reset();
  groups_.abandon();
  policy_->failed();
}

std::vector<std::string> Reducer::names_in_flight() const {
  std::vector<std::string> names = groups_.names_in_flight();
  if (in_flight_) names.push_back(attached_name());
  return names;
}

// -- rounds

Status Reducer::begin_round(bool final, bool alone) {
  // Gradients of no_sync() blocks, and of layers that not every pass has used. Several results of one
  // gradient cannot always be added: the rest of its passes may still come.
  ROUNDELAY_RETURN_IF_ERROR(groups_.submit_overdue(rule_->additive ? 1 : rules_.passes_per_step, false));
  const bool weighted = rule_->weights != nullptr;
  const double weight = weighted ? rule_->weights->weight() : 0.0;
  RoundValues mine{compared_, final, !alone, {}, {}, {}, weight, policy_values_};
  groups_.write(mine);
  const RoundShape shape{mine.submitted.size(), mine.kinds.size(), weighted, policy_fields_};
  ++rounds_;
  Round round{std::nullopt, shape, pack(shape, mine), mine.submitted};
  ROUNDELAY_RETURN_IF_ERROR(submit_attached());
  if (!alone) {
    const Result<complete::Handle> handle = submit(round, false);
    if (!handle.ok()) return groups_.naming_gradients(handle.status());
    round.handle = *handle;
    const auto context = adapter::current_context();
    if (!context.ok()) return context.status();
    (*context)->end_linger();
  }
  round_ = std::move(round);
  return {};
}

Result<complete::Handle> Reducer::submit(const Round& round, bool blocking) {
  wire::Request request = adapter::request_of(Operation::kAgreement, round_name());
  request.root = root_;
  request.fields = fields_of(round.shape);
  return adapter::submit_agreement(std::move(request), round.values, {rule_->process_set, blocking});
}

Status Reducer::submit_attached() {
  if (!attached_.defined()) return {};
  const at::Tensor tensor = std::exchange(attached_, at::Tensor());
  auto request = adapter::request_of(Operation::kAllreduce, attached_name(),
                                     {static_cast<int>(ReduceOp::kMax), 1.0, 1.0}, rule_->process_set);
  if (!request.ok()) return request.status();
  auto operand = adapter::Operand::make({tensor}, {tensor}, request->name, adapter::accelerator());
  const Result<complete::Handle> handle =
      adapter::submit(std::move(operand), *std::move(request), {rule_->process_set, false});
  if (!handle.ok()) return handle.status();
  in_flight_.emplace(*handle);
  return {};
}

Result<Agreed> Reducer::wait_for(const Round& round) {
  if (round.handle) return adapter::synchronize_agreement(*round.handle);
  const Result<complete::Handle> handle = submit(round, true);
  if (!handle.ok()) return handle.status();
  return adapter::synchronize_agreement(*handle);
}

Status Reducer::end_round() {
  Round round = *std::exchange(round_, std::nullopt);
  Result<Agreed> agreed = wait_for(round);
  const bool differs =
      agreed.ok() && !agreed->differences.empty() && agreed->differences.front().field == kComparedField;
  if (differs || agreed.status().code() == StatusCode::kMismatch) {
    policy_->differs(agreed.status());
    return Status::internal("the ranks' optimizers differ, and nobody knows in what");
  }
  if (!agreed.ok()) return groups_.naming_gradients(agreed.status());
  if (in_flight_) ROUNDELAY_RETURN_IF_ERROR(in_flight_->wait());
  in_flight_.reset();
  const RoundValues merged = unpack(round.shape, agreed->values);
  groups_.note(merged);
  all_final_ = merged.final;
  check_weights(merged.weight);
  {
    const at::NoGradGuard no_grad;
    ROUNDELAY_RETURN_IF_ERROR(contribute(merged, round.submitted));
    ROUNDELAY_RETURN_IF_ERROR(finish());
  }
  if (rule_->weights) rule_->weights->end_round();
  if (const auto context = adapter::current_context(); context.ok())
    rules_.marking = (*context)->timeline().enabled();
  tell_policy(merged, *std::move(agreed));
  return {};
}

void Reducer::check_weights(double sum) {
  if (!rule_->weights || rule_->weights->agreed(sum)) return;
  try {
    rule_->weights->refuse(names_in_flight());
  } catch (...) {
    abandon();
    throw;
  }
}

Status Reducer::contribute(const RoundValues& merged, const std::string& submitted) {
  const Result<bool> lacking = groups_.contribute(merged, submitted, *policy_);
  if (!lacking.ok() || !*lacking) return lacking.status();
  const auto context = adapter::current_context();
  if (!context.ok()) return context.status();
  (*context)->end_linger();
  return {};
}

Status Reducer::finish() {
  Status done;
  try {
    done = groups_.finish();
  } catch (...) {
    abandon();
    throw;
  }
  if (!done.ok()) abandon();
  return done;
}

void Reducer::tell_policy(const RoundValues& merged, Agreed agreed) {
  const bool quiet = agreed.differences.empty() && agreed.absent.empty() && !policy_always_ &&
                     !any_but_equal(policy_fields_, merged.policy);
  if (quiet) return;
  for (Difference& difference : agreed.differences) difference.field -= kFirstPolicyField;
  policy_->agreed({merged.policy, std::move(agreed.differences), std::move(agreed.absent), merged.busy});
}

}  // namespace roundelay::gradients
