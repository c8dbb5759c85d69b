#include "gradients/group.h"

#include <algorithm>
#include <utility>

#include "adapter/process.h"
#include "adapter/submission.h"
#include "gradients/contribution.h"

namespace roundelay::gradients {

GradientGroup::GradientGroup(std::string name, std::shared_ptr<const Rule> rule)
    : name_(std::move(name)), ready_name_(name_ + ".ready"), rule_(std::move(rule)) {}

GradientGroup::~GradientGroup() {
  for (const auto& gradient : gradients_) {
    if (gradient->place().group == this) gradient->set_place({});
  }
}

void GradientGroup::add_to(std::shared_ptr<Gradient> gradient, Bucket* bucket) {
  gradient->set_place({this, bucket, gradients_.size()});
  gradients_.push_back(std::move(gradient));
  kinds_.push_back(kNotReady);
}

Status GradientGroup::arrived(Gradient& gradient, const at::Tensor& parameter) {
  const Result<Kind> sparse = sparse_dimensions(gradient, parameter);
  if (!sparse.ok()) return sparse.status();
  const at::Tensor local = gradient.local(parameter);
  if (local.defined()) gradient.set_sparse(*sparse == 0 && local.layout() != at::kStrided);
  const Result<bool> full = mark_ready(gradient, parameter, static_cast<Kind>(kDense + *sparse));
  if (!full.ok()) return full.status();
  return *full ? submit_all() : Status();
}

Result<GradientGroup::Kind> GradientGroup::sparse_dimensions(const Gradient& gradient,
                                                             const at::Tensor& parameter) const {
  const at::Tensor local = gradient.local(parameter);
  if (!local.defined() || local.layout() == at::kStrided || rule().sparse_as_dense) return Kind{0};
  if (rule().additive && local.layout() == at::kSparse && rule().takes_sparse)
    return static_cast<Kind>(local.sparse_dim());
  return adapter::refuse(
      rule().process_set, adapter::request_of(Operation::kAllreduce, gradient.name()),
      Status::invalid(gradient.name() +
                      " has a sparse gradient: give DistributedOptimizer sparse_as_dense=True"));
}

Result<bool> GradientGroup::mark_ready(const Gradient& gradient, const at::Tensor& parameter, Kind kind) {
  if (gradient.place().group != this) return Status::internal("a gradient is ready in another one's group");
  if (ready_ == 0) {
    wanted_ = static_cast<std::size_t>(
        std::count_if(gradients_.begin(), gradients_.end(), [](const auto& one) { return one->wanted(); }));
  }
  Kind& own = kinds_[gradient.place().index];
  if (own == kNotReady) ++ready_;
  own = kind;
  if (parameter.defined()) ROUNDELAY_RETURN_IF_ERROR(note_producer(parameter));
  const bool full =
      ready_ >= wanted_ && std::all_of(kinds_.begin(), kinds_.end(), [](Kind one) { return one <= kDense; });
  const bool submits = full && (rule().weights == nullptr || rule().weights->has_unit());
  if (submits) ++filled_;
  return submits;
}

Status GradientGroup::note_producer(const at::Tensor& tensor) {
  return producers_.note(tensor, adapter::accelerator());
}

void GradientGroup::unmark(std::size_t index) {
  if (kinds_[index] != kNotReady) --ready_;
  kinds_[index] = kNotReady;
}

void GradientGroup::unmark_all() {
  std::fill(kinds_.begin(), kinds_.end(), kNotReady);
  ready_ = 0;
}

void GradientGroup::put_back() {
  for (const auto& gradient : gradients_) gradient->put_back();
}

Status GradientGroup::submit_overdue(int passes, bool by_hand) {
  Chosen overdue;  // the first one may submit the group
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    const Gradient& gradient = *gradients_[i];
    if (kinds_[i] != kNotReady || gradient.place().group != this) continue;
    const at::Tensor parameter = gradient.parameter();
    const at::Tensor local = gradient.local(parameter);
    if (!gradient.wanted(parameter) || !local.defined()) continue;
    if (gradient.passes() >= passes || (by_hand && gradient.set_by_hand(local))) overdue.push_back(i);
  }
  for (const std::size_t index : overdue)
    ROUNDELAY_RETURN_IF_ERROR(arrived(*gradients_[index], gradients_[index]->parameter()));
  return {};
}

Status GradientGroup::submit_all() {
  Chosen wanted;
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    if (gradients_[i]->wanted()) wanted.push_back(i);
  }
  return submit_dense(wanted, name_);
}

Status GradientGroup::submit_ready(std::string_view kinds, SparseReducer& sparse) {
  Chosen dense;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (static_cast<Kind>(kinds[i]) == kDense) dense.push_back(i);
  }
  if (!dense.empty()) ROUNDELAY_RETURN_IF_ERROR(submit_dense(dense, ready_name_));
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const auto kind = static_cast<Kind>(kinds[i]);
    if (kind > kDense) ROUNDELAY_RETURN_IF_ERROR(submit_sparse(i, kind, sparse));
  }
  unmark_all();
  return {};
}

// An operation takes the tensors of one device.
Status GradientGroup::submit_dense(const Chosen& chosen, const std::string& name) {
  ROUNDELAY_RETURN_IF_ERROR(wait_for_producers());
  std::vector<OnDevice> parts;
  for (const std::size_t index : chosen) {
    unmark(index);
    const at::Tensor parameter = gradients_[index]->parameter();
    if (!parameter.defined()) continue;
    const Result<at::Tensor> dense = dense_contribution(*gradients_[index], parameter);
    if (!dense.ok()) return dense.status();
    if (rule().weights) rule().weights->weigh(dense->detach());
    auto flight = DenseFlight::make(*dense, rule());
    if (!flight.ok()) return flight.status();
    const c10::Device device = (*flight)->compressed().device();
    auto part =
        std::find_if(parts.begin(), parts.end(), [&](const OnDevice& one) { return one.device == device; });
    if (part == parts.end()) part = parts.insert(part, OnDevice{device, {}, {}});
    part->chosen.push_back(index);
    part->flights.push_back(std::move(flight).value());
  }
  for (OnDevice& part : parts) ROUNDELAY_RETURN_IF_ERROR(submit_on_one_device(part, name));
  return {};
}

Status GradientGroup::submit_on_one_device(OnDevice& part, const std::string& name) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(part.flights.size());
  for (const auto& flight : part.flights) tensors.push_back(flight->compressed());
  auto request =
      adapter::request_of(Operation::kAllreduce, next_name(name), rule().reduction, rule().process_set);
  if (!request.ok()) return request.status();
  auto operand = adapter::Operand::make(tensors, tensors, request->name, adapter::accelerator());
  const Result<complete::Handle> handle =
      adapter::submit(std::move(operand), *std::move(request), {rule().process_set, false});
  if (!handle.ok()) return handle.status();
  const auto operation = std::make_shared<SharedOperation>(*handle);
  for (std::size_t i = 0; i < part.chosen.size(); ++i) {
    part.flights[i]->submitted(operation);
    submitted(part.chosen[i], std::move(part.flights[i]));
  }
  return {};
}

Status GradientGroup::submit_sparse(std::size_t index, Kind kind, SparseReducer& sparse) {
  Gradient& gradient = *gradients_[index];
  const at::Tensor parameter = gradient.parameter();
  if (!parameter.defined()) return {};
  const Result<at::Tensor> tensor = sparse_contribution(gradient, parameter, kind - kDense);
  if (!tensor.ok()) return tensor.status();
  if (rule().weights) rule().weights->weigh(*tensor);
  submitted(index, sparse.reduce_sparse(*tensor, next_name(gradient.name() + ".sparse")));
  return {};
}

void GradientGroup::submitted(std::size_t index, std::unique_ptr<Flight> flight) {
  flights_.push_back({index, std::move(flight)});
  gradients_[index]->submitted();
}

void GradientGroup::complete(std::size_t index, const at::Tensor& result) {
  if (rule().weights) rule().weights->average(result.detach());
  gradients_[index]->complete(result);
}

Status GradientGroup::finish() {
  while (!flights_.empty()) {
    const InFlight first = std::move(flights_.front());
    flights_.pop_front();
    ROUNDELAY_RETURN_IF_ERROR(first.flight->wait());
    complete(first.index, first.flight->result());
  }
  names_in_flight_.clear();
  return {};
}

void GradientGroup::abandon() {
  while (!flights_.empty()) {
    const InFlight first = std::move(flights_.front());
    flights_.pop_front();
    first.flight->drop();  // the first failure is being raised already
  }
  names_in_flight_.clear();
  for (const auto& gradient : gradients_) gradient->new_step();
}

const std::string& GradientGroup::next_name(const std::string& name) {
  ++operations_;
  return names_in_flight_.emplace_back(operations_ == 1 ? name
                                                        : name + ".pass" + std::to_string(operations_));
}

void GradientGroup::new_step() {
  for (const auto& gradient : gradients_) gradient->new_step();
  operations_ = filled_ = 0;
  seen_ = false;
  unmark_all();
}

}  // namespace roundelay::gradients
