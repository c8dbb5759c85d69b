#include "negotiate/report_merger.h"

#include <algorithm>
#include <utility>

#include "negotiate/agreement_values.h"

namespace roundelay::negotiate {
namespace {

// Members that are late are named long after this time.
constexpr Duration kPatience = std::chrono::seconds(1);

Duration patience_for(StallLimits limits) {
  Duration patience = kPatience;
  for (const Duration limit : {limits.warning, limits.abort}) {
    if (limit > Duration{0}) patience = std::min(patience, limit / 4);
  }
  return patience;
}

std::size_t requests_in(const wire::Report& report) { return report.requests.size() + report.cached.size(); }

// Appends the report's request, with what it changes, to another report of the same member.
void append_request(const wire::MemberReport& said, std::size_t request, wire::MemberReport& to) {
  const std::size_t full = said.report.requests.size();
  if (request < full) {
    to.report.requests.push_back(said.report.requests[request]);
  } else {
    to.report.cached.push_back(said.report.cached[request - full]);
  }
  const auto index = static_cast<std::uint32_t>(to.report.requests.size() + to.report.cached.size() - 1);
  if (const ByteChange* change = change_in(said.report, request))
    to.report.contributions.push_back({index, *change});
  for (const wire::MemberChange& other : others_in(said.others, request))
    to.others.push_back({other.member, index, other.change});
}

}  // namespace

ReportMerger::ReportMerger(LaneId lane, const ReportTree& tree, int member, StallLimits limits)
    : lane_(lane),
      tree_(tree),
      self_(member),
      reporters_(1 + tree.below().size()),
      patience_(patience_for(limits)),
      freeze_(reporters_) {}

// Returns whether the report is that of a member that reports to this one, and of all below that member.
bool ReportMerger::is_for_all(int from, const wire::MemberReport& said) const {
  return said.member == from && (from == self_ || !tree_.leads(from) || said.all_below);
}

const std::string* ReportMerger::name_of(const wire::Report& report, std::size_t request) const {
  if (request < report.requests.size()) return &report.requests[request].name;
  const auto found = names_.find(report.cached[request - report.requests.size()]);
  return found == names_.end() ? nullptr : &found->second;
}

void ReportMerger::take(int from, wire::MemberReport said, TimePoint now) {
  const wire::Report& report = said.report;
  const bool old = report.last_order < newest_ending_;
  if (old && locked_) return;  // the coordinator has dropped what members reported before the lock
  if (report.frozen) {
    if (freeze_.take(said, is_for_all(from, said), now)) pass_on(std::move(said));
    return;
  }
  over_ = over_ || report.leaving || report.removing;
  for (const wire::Request& request : report.requests) {
    const bool has_failed = report.last_order < newest_failed_join_;
    if (request.operation == Operation::kJoin && !has_failed) joins_.insert(request.name);
  }
  const bool all_apart = over_ || !joins_.empty();
  if (all_apart) stop_merging_all();
  if (all_apart || old || !is_for_all(from, said)) return pass_on(std::move(said));

  wire::MemberReport rest{.member = said.member, .all_below = said.all_below};
  rest.report.lane = lane_;
  rest.report.last_order = report.last_order;
  for (std::size_t request = 0; request < requests_in(report); ++request) {
    if (!merge(from, said, request, now)) append_request(said, request, rest);
  }
  if (report.end_linger) rest.report.end_linger = !ends_linger_later(said) || requests_in(rest.report) > 0;
  if (requests_in(rest.report) == 0 && !rest.report.end_linger) return;
  write_complete();
  out_.push_back(std::move(rest));
}

// Returns false if the request has to go on as it came.
bool ReportMerger::merge(int from, const wire::MemberReport& said, std::size_t request, TimePoint now) {
  const wire::Report& report = said.report;
  const std::string* const name = name_of(report, request);
  if (name == nullptr || apart_.contains(*name)) return false;
  if (request < report.requests.size() && !report.requests[request].error.empty()) return false;
  const auto found = pending_.try_emplace(*name, report, request, now).first;
  if (!found->second.same(report, request) || !found->second.add(from, said, request)) {
    stop_merging(*name);
    return false;
  }
  if (found->second.reporters() < reporters_) return true;
  complete_.push_back(std::move(found->second));
  pending_.erase(found);
  return true;
}

// Makes requests that wait here, or that go on now, end the linger for a report that asks for it. Returns
// false if that is not enough: its member waits for something that has gone on before.
bool ReportMerger::ends_linger_later(const wire::MemberReport& said) {
  bool waits = false;
  for (std::size_t request = 0; request < requests_in(said.report); ++request) {
    const std::string* const name = name_of(said.report, request);
    const auto found = name == nullptr ? pending_.end() : pending_.find(*name);
    if (found == pending_.end()) continue;
    found->second.end_linger();
    waits = true;
  }
  end_linger_ = end_linger_ || !complete_.empty();
  return end_linger_ || (waits && !lingers_);
}

void ReportMerger::pass_on(wire::MemberReport said) {
  for (std::size_t request = 0; request < requests_in(said.report); ++request) {
    if (const std::string* const name = name_of(said.report, request)) stop_merging(*name);
  }
  write_complete();
  out_.push_back(std::move(said));
}

void ReportMerger::stop_merging(const std::string& name) {
  apart_.insert(name);
  const auto found = pending_.find(name);
  if (found == pending_.end()) return;
  write_complete();
  found->second.write_each(lane_, out_);
  pending_.erase(found);
}

void ReportMerger::stop_merging_all() {
  while (!pending_.empty()) stop_merging(std::string(pending_.begin()->first));
}

void ReportMerger::write_complete() {
  if (complete_.empty()) return;
  std::ranges::sort(complete_, {}, &MergedRequest::id);
  wire::MemberReport all{.member = self_, .all_below = true};
  all.report.lane = lane_;
  const auto oldest = std::ranges::min_element(complete_, {}, &MergedRequest::least_last_order);
  all.report.last_order = oldest->least_last_order();
  all.report.end_linger = end_linger_ || std::ranges::any_of(complete_, &MergedRequest::ends_linger);
  for (const MergedRequest& request : complete_) request.write(all, tree_);
  lingers_ = !all.report.end_linger;
  end_linger_ = false;
  complete_.clear();
  out_.push_back(std::move(all));
}

void ReportMerger::on_order(const wire::Order& order) {
  const bool ends = !order.failures.empty() || !order.evicted.empty() || order.joined || order.unlock;
  if (ends) {
    stop_merging_all();
    write_complete();
  }
  if (ends || order.lock) newest_ending_ = order.sequence;
  for (const wire::CacheId id : order.evicted) names_.erase(id);
  for (const wire::FusedOperation& operation : order.operations) {
    for (const wire::FusedTensor& tensor : operation.tensors) on_ordered(tensor);
  }
  for (const wire::Failure& failure : order.failures) {
    apart_.erase(failure.name);
    if (joins_.erase(failure.name) > 0 || !failure.counters.empty()) newest_failed_join_ = order.sequence;
  }
  if (order.joined) joins_.clear();
  if (order.unlock) locked_ = false;
  if (order.freeze) freeze_.on_freeze();
  if (order.lock) on_lock();
}

void ReportMerger::on_ordered(const wire::FusedTensor& tensor) {
  if (!tensor.name.empty() && tensor.id != wire::kNoCacheId) names_[tensor.id] = tensor.name;
  const auto known = names_.find(tensor.id);
  if (!tensor.name.empty() || known != names_.end())
    apart_.erase(tensor.name.empty() ? known->second : tensor.name);
}

// Each member withdraws what it has reported.
void ReportMerger::on_lock() {
  pending_.clear();
  complete_.clear();
  end_linger_ = false;
  apart_.clear();
  locked_ = true;
  freeze_.begin();
}

std::vector<wire::MemberReport> ReportMerger::take_reports(TimePoint now) {
  std::vector<std::string> overdue;
  for (const auto& [name, request] : pending_) {
    if (now - request.since() >= patience_) overdue.push_back(name);
  }
  for (const std::string& name : overdue) stop_merging(name);
  write_complete();
  for (wire::MemberReport& report : freeze_.take_overdue(now, patience_)) out_.push_back(std::move(report));
  if (auto all = freeze_.take_all(lane_, self_)) out_.push_back(std::move(*all));
  return std::exchange(out_, {});
}

Deadline ReportMerger::next_due() const {
  Deadline due = freeze_.next_due(patience_);
  for (const auto& [name, request] : pending_) due = due.sooner(Deadline::at(request.since() + patience_));
  return due;
}

}  // namespace roundelay::negotiate
