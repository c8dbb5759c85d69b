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
      table_(group_.size()),
      joins_(group_),
      stall_(group_, joins_, {options.stall_warning, options.stall_abort}),
      applied_(group_.size()),
      cache_(options.cache_capacity),
      ready_(options.plan, options.fire),
      schedule_(group_, {options.stall_warning, options.stall_abort}),
      removing_(group_.ranks.size(), false) {}

Status Coordinator::on_report(int member, const wire::Report& report, TimePoint now) {
  if (closed_) return {};
  applied_.on_report(member, report.last_order);
  if (schedule_.outdated(report)) return {};
  if (schedule_.locked()) return schedule_.on_report(member, report, now);
  if (report.frozen) {
    return Status::internal("rank " + std::to_string(rank_of(member)) + " has frozen, but there is no lock");
  }
  ROUNDELAY_RETURN_IF_ERROR(take_requests(member, report, now));
  end_linger_ = end_linger_ || report.end_linger;
  if (report.leaving && left_by_ < 0) left_by_ = rank_of(member);
  if (report.removing) removing_[static_cast<std::size_t>(member)] = true;
  applied_.forget();
  return {};
}

Status Coordinator::take_requests(int member, const wire::Report& report, TimePoint now) {
  std::size_t index = report.requests.size();
  for (const wire::CacheId id : report.cached) {
    ReportedValues values = values_in(report, index++, rank_of(member));
    if (const wire::Request* request = cache_.find(id)) {
      cache_.touch(id);
      ROUNDELAY_RETURN_IF_ERROR(on_request(member, *request, now, std::move(values)));
    } else if (!cache_.was_given(id)) {
      return Status::internal("rank " + std::to_string(rank_of(member)) + " reported cache id " +
                              std::to_string(id) + ", which was never given");
    } else {
      applied_.on_evicted_id(member, id);
    }
  }
  index = 0;
  for (const wire::Request& request : report.requests) {
    ROUNDELAY_RETURN_IF_ERROR(on_request(member, request, now, values_in(report, index++, rank_of(member))));
  }
  if (joins_.deferred() == 0 || !applied_.heard_all(member)) return {};
  const auto join = joins_.take_deferred(member);
  return join ? on_request(member, *join, now) : Status{};
}

Status Coordinator::on_request(int member, const wire::Request& request, TimePoint now,
                               ReportedValues values) {
  if (applied_.already_failed(request.name, member)) return {};
  const auto who = [&] { return "rank " + std::to_string(rank_of(member)); };
  Iterator position = table_.find(request.name);
  const bool known = position != table_.all().end();
  if (!request.error.empty()) {
    if (known) take_reported(position);
    fail(request, who() + ": " + request.error, now);
    return {};
  }
  const bool joins = request.operation == Operation::kJoin;
  if (joins && !applied_.heard_all(member)) {
    joins_.defer(member, request);
    return {};
  }
  if (!fits(values.change, bytes_of(request.fields)))
    return Status::internal(who() + " reported '" + request.name + "' with a change past its values");
  if (joins_.has_joined(member))
    return Status::internal(who() + " reported '" + request.name + "' after its join");
  if (!known) {
    position = table_.open(member, request, now);
    stall_.on_opened(table_, position->second);
  } else if (position->second.by_member[static_cast<std::size_t>(member)]) {
    return Status::internal(who() + " reported '" + request.name + "' twice");
  } else if (std::string text = mismatch_with(position->second, member, request); !text.empty()) {
    take_reported(position);
    fail(request, std::move(text), now, StatusCode::kMismatch);
    return {};
  }
  table_.report(position->second, member, request, std::move(values));
  if (joins) {
    on_joined(position, member, now);
  } else {
    joins_.restart_clock(now);
    decide_if_complete(position, member, now);
  }
  return {};
}

// The text names the lower rank first.
std::string Coordinator::mismatch_with(const ReportedRequest& reported, int member,
                                       const wire::Request& request) const {
  const int first_rank = rank_of(reported.first_member);
  const int rank = rank_of(member);
  return first_rank < rank ? mismatch(reported.request, first_rank, request, rank)
                           : mismatch(request, rank, reported.request, first_rank);
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
  count_unnamed(reported.request);
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
    if (!joins_.is_join(reported) && !reported.by_member[static_cast<std::size_t>(member)])
      waiting.emplace_back(reported.first_seen, name);
  }
  std::sort(waiting.begin(), waiting.end());
  for (const auto& [seen, name] : waiting) decide_if_complete(table_.find(name), member, now);

  if (join.missing > 0) return;
  take_reported(position);
  joins_.complete({rank_of(member), {unnamed_.begin(), unnamed_.end()}});
}

void Coordinator::fail(const wire::Request& request, std::string text, TimePoint now, StatusCode code) {
  applied_.on_failed(request.name, sequence_ + 1);  // failures never wait: the very next order has them
  count_unnamed(request);
  std::vector<std::uint64_t> counters;
  if (request.operation == Operation::kJoin) counters.assign(unnamed_.begin(), unnamed_.end());
  failures_.push_back({request.name, code, std::move(text), std::move(counters)});
  joins_.drop_deferred(request.name);
  joins_.restart_clock(now);
}

void Coordinator::count_unnamed(const wire::Request& request) {
  std::uint64_t& count = unnamed_[static_cast<std::size_t>(request.operation)];
  count = std::max(count, request.unnamed);
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
  order.failures = std::exchange(failures_, {});
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
