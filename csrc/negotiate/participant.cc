#include "negotiate/participant.h"
#include "lock/lockable.h"

#include <algorithm>
#include <utility>

#include "negotiate/member_agreements.h"

namespace roundelay::negotiate {

void Participant::submit(const wire::Submission& submission) {
  const std::string& name = submission.request.name;
  if (outstanding_.contains(name) || own_errors_.contains(name) || deferred_.contains(name)) {
    deferred_[name].push_back(submission);
    return;
  }
  begin(submission);
}

bool Participant::begin(const wire::Submission& submission) {
  const wire::Request& request = submission.request;
  const std::string& name = request.name;
  if (!join_.empty() && !request.error.empty()) return false;  // no rank waits for it any more
  if (const auto early = failed_by_peers_.find(name); early != failed_by_peers_.end()) {
    Status why = std::move(early->second.front());
    early->second.pop_front();
    if (early->second.empty()) failed_by_peers_.erase(early);
    if (request.error.empty()) failed_.push_back({name, std::move(why)});
    return false;
  }
  if (request.error.empty()) {
    outstanding_.emplace(name, Outstanding{submission});
    if (request.operation == Operation::kJoin) join_ = name;
  } else {
    own_errors_.emplace(name, request);
  }
  to_report_.push_back(name);
  return true;
}

// Begins deferred submissions of `name`, whose last submission has ended, until one does not end at once.
void Participant::begin_deferred(const std::string& name) {
  for (auto waiting = deferred_.find(name); waiting != deferred_.end(); waiting = deferred_.find(name)) {
    const wire::Submission next = std::move(waiting->second.front());
    waiting->second.pop_front();
    if (waiting->second.empty()) deferred_.erase(waiting);
    if (begin(next)) return;
  }
}

// Returns true if a submission after one that failed is still to be reported. A join or removal comes later.
bool Participant::any_deferred() const {
  for (const auto& [name, submissions] : deferred_) {
    for (const wire::Submission& submission : submissions) {
      if (submission.request.error.empty() && name != join_) return true;
    }
  }
  return false;
}

// Returns the names to report now. A join is the last to be reported.
std::vector<std::string> Participant::take_reportable() {
  std::vector<std::string> names = std::exchange(to_report_, {});
  if (join_.empty() || std::erase(names, join_) == 0) return names;
  (any_deferred() ? to_report_ : names).push_back(join_);
  return names;
}

std::optional<wire::Report> Participant::take_report() {
  if (lock_.active) return take_report_of_freeze();
  const std::vector<std::string> names = take_reportable();
  // It is for what was reported so far, and changes nothing if nothing was reported since the last time.
  const bool end_linger = std::exchange(end_linger_wanted_, false) && (may_linger_ || !names.empty());
  const bool leaving = leaving_ && !leave_reported_;
  const bool removing = removing_ && !removal_reported_ && !any_deferred();
  const bool changed = !names.empty() || end_linger || leaving || removing || report_applied_;
  if (!changed) return std::nullopt;

  wire::Report report;
  report.lane = lane_;
  report.last_order = last_order_;
  report.end_linger = end_linger;
  report.leaving = leaving;
  report.removing = removing;
  leave_reported_ = leave_reported_ || leaving;
  removal_reported_ = removal_reported_ || removing;
  report_applied_ = false;
  may_linger_ = !end_linger;
  fill(report, names);
  return report;
}

void Participant::fill(wire::Report& report, const std::vector<std::string>& names) {
  ReportedSubmissions submissions(cache_, report);
  for (const std::string& name : names) {
    const auto found = outstanding_.find(name);
    if (found == outstanding_.end()) {
      report.requests.push_back(own_errors_.at(name));
    } else {
      found->second.reported_as = submissions.add(found->second.submission);
      found->second.reported = true;
    }
  }
  submissions.finish();
}

void Participant::evict(wire::CacheId id) {
  const std::optional<std::string> name = cache_.evict(id);
  if (!name) return;
  // A submission may have been reported by this id, even if it has failed since. A join waits for that.
  report_applied_ = report_applied_ || !join_.empty() || removal_reported_;
  // The coordinator cannot know what a report by a stale id meant: report the request again in full.
  const auto outstanding = outstanding_.find(*name);
  if (outstanding != outstanding_.end() && outstanding->second.reported_as == id) {
    outstanding->second.reported_as = wire::kNoCacheId;
    outstanding->second.reported = false;
    to_report_.push_back(*name);
  }
}

Status Participant::apply_operation(const wire::FusedOperation& operation, Applied& applied) {
  OrderedOperation& ordered = applied.operations.emplace_back();
  ordered.extents = operation.extents;
  ordered.absent.assign(operation.absent.begin(), operation.absent.end());
  ordered.skipped = std::binary_search(operation.absent.begin(), operation.absent.end(), member_);
  if (ordered.skipped && join_.empty())
    return Status::internal("an order takes this rank for joined, which it is not");
  if (ordered.skipped) return take_skipped_result(operation, cache_, ordered.agreed);
  for (const wire::FusedTensor& tensor : operation.tensors) {
    Result<std::string> name = cache_.name_of(tensor);
    if (!name.ok()) return name.status();
    const auto found = outstanding_.find(*name);
    if (found == outstanding_.end() || !found->second.reported) {
      return Status::internal("an order names '" + *name + "', which this rank did not report");
    }
    const wire::Request& request = found->second.submission.request;
    ROUNDELAY_RETURN_IF_ERROR(cache_.assign(tensor, request));
    ROUNDELAY_RETURN_IF_ERROR(take_result(operation, request, cache_, ordered.agreed));
    outstanding_.erase(found);
    ordered.names.push_back(std::move(name).value());
  }
  return {};
}

Status Participant::apply_tickets(const wire::OrderTickets& tickets, Applied& applied) const {
  const auto member = static_cast<std::size_t>(member_);
  if (member >= tickets.tickets.previous.size())
    return Status::internal("an order gives tickets to operations, but not this rank's");
  GpuTicket next{tickets.tickets.first, tickets.tickets.previous[member]};
  for (const std::int32_t operation : tickets.operations) {
    const auto index = static_cast<std::size_t>(operation);
    if (index >= applied.operations.size())
      return Status::internal("an order gives a ticket to operation " + std::to_string(operation) +
                              ", but has only " + std::to_string(applied.operations.size()));
    applied.operations[index].ticket = next;
    next = {next.number + 1, next.number};
  }
  return {};
}

void Participant::apply_failure(const wire::Failure& failure, Applied& applied) {
  const std::string& name = failure.name;
  const Status why(failure.code, failure.text);
  if (const auto outstanding = outstanding_.find(name); outstanding != outstanding_.end()) {
    if (!outstanding->second.reported) std::erase(to_report_, name);
    outstanding_.erase(outstanding);
    applied.failed.push_back({name, why, failure.counters});
    if (name == join_) join_.clear();
    begin_deferred(name);
  } else if (own_errors_.erase(name) > 0) {
    std::erase(to_report_, name);  // a peer's error came first and ends this submission
    begin_deferred(name);
  } else if (join_.empty()) {
    failed_by_peers_[name].push_back(why);
  }
}

Status Participant::apply_joined(const wire::Joined& joined, Applied& applied) {
  const auto found = outstanding_.find(join_);
  if (join_.empty() || found == outstanding_.end() || !found->second.reported)
    return Status::internal("an order says that all ranks have joined, but this one has not");
  applied.joined = joined;
  failed_by_peers_.clear();  // this rank will never make those submissions
  const std::string name = std::exchange(join_, {});
  outstanding_.erase(found);
  begin_deferred(name);
  return {};
}

Result<Applied> Participant::apply(const wire::Order& order) {
  if (order.sequence != last_order_ + 1) {
    return Status::internal("order " + std::to_string(order.sequence) + " came after order " +
                            std::to_string(last_order_));
  }
  last_order_ = order.sequence;
  Applied applied;
  applied.shutdown_by = order.shutdown_by;
  applied.removed = order.removed;
  applied.freeze = order.freeze;
  if (order.unlock) ROUNDELAY_RETURN_IF_ERROR(apply_unlock(*order.unlock, applied));
  for (const wire::CacheId id : order.evicted) evict(id);
  for (const wire::FusedOperation& operation : order.operations) {
    ROUNDELAY_RETURN_IF_ERROR(apply_operation(operation, applied));
  }
  if (order.tickets) ROUNDELAY_RETURN_IF_ERROR(apply_tickets(*order.tickets, applied));
  for (const wire::Failure& failure : order.failures) apply_failure(failure, applied);
  // Submissions deferred after an operation begin when it is ordered: ranks count submissions and not
  // completions.
  for (const OrderedOperation& ordered : applied.operations) {
    for (const std::string& name : ordered.names) begin_deferred(name);
  }
  if (order.joined) ROUNDELAY_RETURN_IF_ERROR(apply_joined(*order.joined, applied));
  if (order.lock) ROUNDELAY_RETURN_IF_ERROR(apply_lock(*order.lock, applied));
  return applied;
}

// -- the schedule lock

void Participant::freeze(std::uint64_t announced) {
  if (lock_.active && !lock_.frozen) lock_.frozen = announced;
}

std::optional<wire::Report> Participant::take_report_of_freeze() {
  if (!lock_.frozen || std::exchange(lock_.reported, true)) return std::nullopt;
  wire::Report report;
  report.lane = lane_;
  report.last_order = last_order_;
  report.frozen = lock_.frozen;
  return report;
}

// Returns all submissions that are neither ordered nor failed, as if they had not begun. A submission in
// flight comes before those of the same name that wait for it. A join is the last of all.
std::vector<wire::Submission> Participant::take_all_back() {
  std::vector<wire::Submission> submissions;
  for (const auto& [name, outstanding] : outstanding_) submissions.push_back(outstanding.submission);
  for (const auto& [name, request] : own_errors_) submissions.emplace_back(request);
  std::sort(submissions.begin(), submissions.end(),
            [](const auto& a, const auto& b) { return a.request.name < b.request.name; });
  for (const auto& [name, later] : deferred_)
    submissions.insert(submissions.end(), later.begin(), later.end());
  std::stable_partition(submissions.begin(), submissions.end(),
                        [&](const auto& submission) { return submission.request.name != join_; });
  outstanding_.clear();
  own_errors_.clear();
  deferred_.clear();
  to_report_.clear();
  join_.clear();
  return submissions;
}

Status Participant::apply_lock(const wire::Lock& lock, Applied& applied) {
  if (lock_.active) return Status::internal("an order locks the schedule twice");
  Schedule& schedule = applied.schedule.emplace();
  schedule.number = lock.number;
  for (const auto& ids : lock.operations) {
    auto& tensors = schedule.operations.emplace_back();
    for (const wire::CacheId id : ids) {
      const Result<const wire::Request*> request = cache_.request_of(id);
      if (!request.ok()) return request.status();
      tensors.emplace_back(**request, cache_.base_of(id));
    }
  }
  const auto request_of = [&](wire::CacheId id) -> const wire::Request& { return **cache_.request_of(id); };
  if (!lock::lockable(lock.operations, request_of))
    return Status::internal("an order locks too many agreements");
  schedule.returned = take_all_back();
  lock_ = {};
  lock_.active = true;
  // The coordinator has dropped these reports too: they are made again after the lock.
  leave_reported_ = removal_reported_ = may_linger_ = false;
  return {};
}

Status Participant::apply_unlock(std::uint64_t from, Applied& applied) {
  if (!lock_.active || !lock_.frozen || from > *lock_.frozen)
    return Status::internal("an order ends a lock that this rank has not frozen, or not so early");
  applied.unlock = from;
  lock_ = {};
  cache_.forget_bases();
  return {};
}

}  // namespace roundelay::negotiate
