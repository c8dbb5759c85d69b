// The schedule lock, on both sides: when orders repeat, what becomes of uses in between, and how it ends.
#include <algorithm>
#include <utility>

#include "negotiate/coordinator.h"
#include "negotiate/participant.h"

namespace roundelay::negotiate {

// -- coordinator

bool Coordinator::may_lock() const {
  const bool removing = std::find(removing_.begin(), removing_.end(), true) != removing_.end();
  return !closed_ && left_by_ < 0 && !removing && join_ == nullptr && !join_over_ && early_joins_.empty() &&
         ready_.empty() && failures_.empty() && settled_.empty();
}

// All that is repeated must be known to all members by id alone.
void Coordinator::lock_if_periodic(wire::Order& order) {
  bool plain = order.failures.empty() && order.evicted.empty() && !order.joined && !order.tickets;
  for (const wire::FusedOperation& operation : order.operations) {
    ScheduleFinder::Ids ids;
    plain = plain && operation.extents.empty() && operation.absent.empty();
    for (const wire::FusedTensor& member : operation.tensors) {
      plain = plain && member.name.empty();
      ids.push_back(member.id);
    }
    if (!plain) break;
    finder_.saw(ids);
  }
  if (!plain) return finder_.interrupted();
  auto period = may_lock() ? finder_.period() : std::nullopt;
  if (!period) return;
  period_ = period->size();
  locked_by_ = order.sequence;
  keeper_.begin(static_cast<std::size_t>(group_.size()));
  order.lock = wire::Lock{keeper_.number(), std::move(*period)};
  table_.clear();  // who reported takes it back
  flush_ = false;
}

Status Coordinator::on_report_under_lock(int member, const wire::Report& report, TimePoint now) {
  const std::string who = "rank " + std::to_string(rank_of(member));
  if (!report.requests.empty() || !report.cached.empty() || report.leaving || report.removing)
    return Status::internal(who + " reports operations while the schedule is locked");
  if (!report.frozen) return {};
  if (!keeper_.on_frozen(static_cast<std::size_t>(member), *report.frozen, now))
    return Status::internal(who + " has frozen twice");
  silence_warned_ = keeper_.asked();
  return {};
}

std::optional<wire::Order> Coordinator::take_order_under_lock() {
  wire::Order order;
  order.lane = lane_;
  order.freeze = keeper_.take_freeze();
  order.unlock = keeper_.take_unlock();
  if (!order.freeze && !order.unlock) return std::nullopt;
  order.sequence = ++sequence_;
  if (order.unlock) finder_.unlocked(period_, *order.unlock);
  return order;
}

std::string Coordinator::silent_ranks() const {
  std::string text;
  const std::vector<int> silent = keeper_.silent();
  for (const int member : silent) text += (text.empty() ? "" : ", ") + std::to_string(rank_of(member));
  return (silent.size() == 1 ? "rank " : "ranks ") + text;
}

Deadline Coordinator::silence_due() const {
  Deadline due = Deadline::never();
  if (options_.stall_warning > Duration{0}) due = Deadline::at(silence_warned_ + options_.stall_warning);
  if (options_.stall_abort > Duration{0})
    due = due.sooner(Deadline::at(keeper_.asked() + options_.stall_abort));
  return due;
}

// What they owe has no names yet: they have not even said how far they are.
void Coordinator::warn_of_silence(TimePoint now, std::vector<std::string>& lines) {
  if (options_.stall_warning <= Duration{0} || keeper_.silent().empty()) return;
  if (now - silence_warned_ < options_.stall_warning) return;
  silence_warned_ = now;
  for (const int member : keeper_.silent()) late_.insert(rank_of(member));
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now - keeper_.asked());
  lines.push_back(silent_ranks() + " answered nothing for " + std::to_string(waited.count()) +
                  " s while other ranks wait: stopped, overloaded or unreachable");
}

std::optional<wire::Abort> Coordinator::take_fault(TimePoint now) const {
  if (options_.stall_abort <= Duration{0} || keeper_.silent().empty()) return std::nullopt;
  if (now - keeper_.asked() < options_.stall_abort) return std::nullopt;
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now - keeper_.asked());
  return wire::Abort{rank_of(keeper_.silent().front()),
                     silent_ranks() + " answered nothing for " + std::to_string(waited.count()) +
                         " s (ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS) while other ranks wait: stopped, "
                         "overloaded or unreachable"};
}

// -- participant

void Participant::freeze(std::uint64_t announced) {
  if (locked_ && !frozen_) frozen_ = announced;
}

std::optional<wire::Report> Participant::take_report_of_freeze() {
  if (!frozen_ || std::exchange(frozen_said_, true)) return std::nullopt;
  wire::Report report;
  report.lane = lane_;
  report.last_order = last_order_;
  report.frozen = frozen_;
  return report;
}

// Everything that was begun, as if it had not been: first of each name what is in flight, then what waits
// behind it. A join is every rank's last use.
std::vector<wire::Request> Participant::take_all_back() {
  std::vector<wire::Request> uses;
  for (const auto& [name, pending] : pending_) uses.push_back(pending.request);
  for (const auto& [name, request] : own_errors_) uses.push_back(request);
  std::sort(uses.begin(), uses.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (const auto& [name, requests] : deferred_) uses.insert(uses.end(), requests.begin(), requests.end());
  std::stable_partition(uses.begin(), uses.end(), [&](const auto& use) { return use.name != join_; });
  pending_.clear();
  own_errors_.clear();
  deferred_.clear();
  to_report_.clear();
  join_.clear();
  return uses;
}

Status Participant::apply_lock(const wire::Lock& lock, Applied& applied) {
  if (locked_) return Status::internal("an order locks the schedule twice");
  Schedule& schedule = applied.schedule.emplace();
  schedule.number = lock.number;
  for (const auto& ids : lock.operations) {
    auto& members = schedule.operations.emplace_back();
    for (const wire::CacheId id : ids) {
      const Result<std::string> name = name_of_tensor({id, {}});
      if (!name.ok()) return name.status();
      const auto cached = cache_.find(*name);
      if (cached == cache_.end() || cached->second.id != id)
        return Status::internal("an order locks an outdated use of '" + *name + "'");
      members.push_back(cached->second.request);
    }
  }
  schedule.returned = take_all_back();
  locked_ = true;
  frozen_said_ = false;
  frozen_.reset();
  // What was said about these before went the way of the uses.
  left_ = removal_said_ = unflushed_ = false;
  return {};
}

Status Participant::apply_unlock(std::uint64_t from, Applied& applied) {
  if (!locked_ || !frozen_ || from > *frozen_)
    return Status::internal("an order ends a lock that this rank has not frozen, or not so early");
  applied.unlock = from;
  locked_ = false;
  frozen_.reset();
  return {};
}

}  // namespace roundelay::negotiate
