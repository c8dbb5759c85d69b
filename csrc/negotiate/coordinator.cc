#include "negotiate/coordinator.h"

#include <algorithm>

#include "lock/lockable.h"
#include "negotiate/validate.h"
#include "wire/describe.h"

namespace roundelay::negotiate {

Coordinator::Coordinator(LaneId lane, Group group, const CoordinatorOptions& options)
    : lane_(lane),
      group_(std::move(group)),
      locks_schedules_(options.schedule_lock),
      table_(group_),
      joins_(group_),
      stall_(group_, joins_, {options.stall_warning, options.stall_abort}),
      applied_(group_.size()),
      cache_(options.cache_capacity),
      ready_(options.plan, options.fire),
      schedule_(group_, {options.stall_warning, options.stall_abort}),
      removing_(group_.ranks.size(), false) {}

Status Coordinator::on_report(const Reporters& who, TimePoint now) {
  if (closed_) return {};
  const wire::Report& report = who.report;
  applied_.on_report(who.members, report.last_order);
  if (schedule_.outdated(report)) return {};
  if (schedule_.locked()) return schedule_.on_report(who.members, report, now);
  if (report.frozen) return Status::internal(name_of(who) + " has frozen, but there is no lock");
  ROUNDELAY_RETURN_IF_ERROR(take_requests(who, now));
  end_linger_ = end_linger_ || report.end_linger;
  if (report.leaving && left_by_ < 0) left_by_ = rank_of(who.members.front());
  if (report.removing) removing_[static_cast<std::size_t>(who.members.front())] = true;
  applied_.forget();
  return {};
}

Status Coordinator::take_requests(const Reporters& who, TimePoint now) {
  std::size_t number = who.report.requests.size();
  for (const wire::CacheId id : who.report.cached) {
    if (const wire::Request* request = cache_.find(id)) {
      cache_.touch(id);
      ROUNDELAY_RETURN_IF_ERROR(on_request(who, *request, number, now));
    } else if (!cache_.was_given(id)) {
      return Status::internal(name_of(who) + " reported cache id " + std::to_string(id) +
                              ", which was never given");
    } else {
      applied_.on_evicted_id(who.members, id);
    }
    ++number;
  }
  number = 0;
  for (const wire::Request& request : who.report.requests) {
    ROUNDELAY_RETURN_IF_ERROR(on_request(who, request, number++, now));
  }
  if (joins_.deferred() == 0) return {};
  for (const int member : who.members) ROUNDELAY_RETURN_IF_ERROR(take_deferred_join(member, now));
  return {};
}

Status Coordinator::take_deferred_join(int member, TimePoint now) {
  if (!applied_.heard_all(member)) return {};
  const auto join = joins_.take_deferred(member);
  if (!join) return {};
  wire::Report report;
  report.requests.push_back(*join);
  return on_request({{&member, 1}, report}, report.requests.front(), 0, now);
}

// `number`: of the request in the report.
Status Coordinator::on_request(const Reporters& who, const wire::Request& request, std::size_t number,
                               TimePoint now) {
  const int first = who.members.front();
  if (applied_.already_failed(request.name, first)) return {};
  Iterator position = table_.find(request.name);
  const bool known = position != table_.all().end();
  if (!request.error.empty()) {
    if (known) take_reported(position);
    fail(request, name_of(who) + ": " + request.error, now);
    return {};
  }
  const bool joins = request.operation == Operation::kJoin;
  if (joins && !applied_.heard_all(first)) {
    joins_.defer(first, request);
    return {};
  }
  if (!values_fit(who, number, bytes_of(request.fields)))
    return Status::internal(name_of(who) + " reported '" + request.name + "' with a change past its values");
  if (joins_.any_joined(who.members))
    return Status::internal(name_of(who) + " reported '" + request.name + "' after its join");
  if (!known) {
    position = table_.open(first, request, now);
    stall_.on_opened(table_, position->second);
  } else if (position->second.reported_by(who.members)) {
    return Status::internal(name_of(who) + " reported '" + request.name + "' twice");
  } else if (std::string text = mismatch(position->second.request, rank_of(position->second.first_member),
                                         request, rank_of(first));
             !text.empty()) {
    take_reported(position);
    fail(request, std::move(text), now, StatusCode::kMismatch);
    return {};
  }
  table_.report(position->second, who, request, number);
  if (joins) {
    on_joined(position, first, now);
  } else {
    joins_.restart_clock(now);
    decide_if_complete(position, first, now);
  }
  return {};
}

std::string Coordinator::name_of(const Reporters& who) const {
  return "rank " + std::to_string(rank_of(who.members.front()));
}

ReportedRequest Coordinator::take_reported(Iterator position) {
  if (joins_.is_join(position->second)) joins_.end();
  return table_.extract(position);
}

// A request needs the reports of all members that have not joined.
void Coordinator::decide_if_complete(Iterator position, int last_member, TimePoint now) {
  const ReportedRequest& reported = position->second;
  if (reported.missing > 0) {
    if (!joins_.active()) return;
    if (std::string why = joins_.refusal_of(reported); !why.empty()) {
      fail(take_reported(position).request, std::move(why), now);
      return;
    }
    if (std::ssize(joins_.absent_from(reported)) < reported.missing) return;
  }
  make_ready(take_reported(position), last_member, now);
}

void Coordinator::make_ready(ReportedRequest reported, int last_member, TimePoint now) {
  failures_.count(reported.request);
  if (group_.size() > 1)
    notes_.push_back({reported.request.name, rank_of(last_member), now - reported.first_seen});
  std::vector<std::int32_t> absent = joins_.absent_from(reported);
  ready_.push(std::move(reported), std::move(absent), now);
}

// Requests that waited for this member alone go on without it.
void Coordinator::on_joined(Iterator position, int member, TimePoint now) {
  ReportedRequest& join = position->second;
  joins_.begin(join);
  joins_.restart_clock(now);

  std::vector<std::pair<TimePoint, std::string>> waiting;
  for (const auto& [name, reported] : table_.all()) {
    if (!joins_.is_join(reported) && reported.by_member[static_cast<std::size_t>(member)] == 0)
      waiting.emplace_back(reported.first_seen, name);
  }
  std::sort(waiting.begin(), waiting.end());
  for (const auto& [seen, name] : waiting) decide_if_complete(table_.find(name), member, now);

  if (join.missing > 0) return;
  take_reported(position);
  joins_.complete({rank_of(member), failures_.counters()});
}

void Coordinator::fail(const wire::Request& request, std::string text, TimePoint now, StatusCode code) {
  applied_.on_failed(request.name, sequence_ + 1);  // failures never wait: the very next order has them
  failures_.add(request, code, std::move(text));
  joins_.drop_deferred(request.name);
  joins_.restart_clock(now);
}

void Coordinator::set_needs_tickets(bool yes) {
  if (yes && !needs_tickets_) schedule_.interrupt();  // the period may have operations on a GPU
  needs_tickets_ = yes;
}

std::optional<wire::Order> Coordinator::take_order(TimePoint now) {
  if (closed_) return std::nullopt;
  if (schedule_.locked()) return take_order_under_lock();
  give_up_stalled(now);
  const bool left = left_by_ >= 0;
  const bool removed = !left && all_remove();
  if (removed) fail_incomplete(now);
  // All ready requests go now: some are without members that take part again from the next order on.
  const bool last = joins_.take_ended() || removed;
  const bool fire = !left && !ready_.empty() && (last || ready_.fires(end_linger_, now));
  end_linger_ = false;
  if (!fire && failures_.empty() && !left && !last) return std::nullopt;

  wire::Order order;
  order.lane = lane_;
  order.sequence = ++sequence_;
  order.failures = failures_.take();
  if (fire) ready_.write(order, cache_, table_, needs_tickets_);
  applied_.on_evicted(order.evicted, order.sequence);
  if (!left) order.joined = joins_.take_joined();
  order.shutdown_by = left_by_;
  order.removed = removed;
  closed_ = left || removed;
  if (!locks_schedules_ || !schedule_.on_order(order) || !may_lock()) return order;
  const auto request_of = [&](wire::CacheId id) -> const wire::Request& { return *cache_.find(id); };
  if (schedule_.begin_if_periodic(order,
                                  [&](const auto& period) { return lock::lockable(period, request_of); })) {
    table_.clear();  // each member takes back its requests
    end_linger_ = false;
  }
  return order;
}

std::optional<wire::Order> Coordinator::take_order_under_lock() {
  wire::Order order;
  if (!schedule_.write(order)) return std::nullopt;
  if (order.unlock) cache_.forget_bases();
  order.lane = lane_;
  order.sequence = ++sequence_;
  return order;
}

bool Coordinator::may_lock() const {
  const bool removing = std::find(removing_.begin(), removing_.end(), true) != removing_.end();
  const bool joining = joins_.active() || joins_.ended() || joins_.deferred() > 0;
  return !closed_ && left_by_ < 0 && !removing && !joining && ready_.empty() && failures_.empty() &&
         !applied_.any_failed();
}

void Coordinator::give_up_stalled(TimePoint now) {
  for (const std::string& name : stall_.overdue(table_, now)) {
    const Iterator position = table_.find(name);
    std::string text = stall_.abort_text(position->second);
    fail(take_reported(position).request, std::move(text), now);
  }
}

bool Coordinator::all_remove() const {
  for (int member = 0; member < group_.size(); ++member) {
    if (!removing_[static_cast<std::size_t>(member)] || !applied_.heard_all(member)) return false;
  }
  return true;
}

void Coordinator::fail_incomplete(TimePoint now) {
  std::vector<std::string> names;
  for (const auto& [name, reported] : table_.all()) names.push_back(name);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const Iterator position = table_.find(name);
    const std::string missing = wire::describe_ranks(joins_.awaited_by(position->second));
    const ReportedRequest reported = take_reported(position);
    std::string text = wire::describe(reported.request) + " was never submitted by " + missing +
                       ", and process set " + std::to_string(lane_.process_set) + " is being removed";
    fail(reported.request, std::move(text), now);
  }
}

std::vector<std::string> Coordinator::take_stall_warnings(TimePoint now) {
  std::vector<std::string> lines = stall_.take_warnings(table_, now, late_);
  if (auto silence = schedule_.take_warning(now, late_)) lines.push_back(std::move(*silence));
  return lines;
}

Deadline Coordinator::next_due() const {
  if (closed_) return Deadline::never();
  return ready_.next_due().sooner(stall_.next_due(table_)).sooner(schedule_.next_due());
}

std::optional<wire::Abort> Coordinator::take_fault(TimePoint now) const { return schedule_.fault(now); }

}  // namespace roundelay::negotiate
