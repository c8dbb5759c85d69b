// The schedule lock on the members' side: it returns uses that are not ordered, and ends after a freeze.
#include <algorithm>
#include <utility>

#include "negotiate/lockable.h"
#include "negotiate/participant.h"

namespace roundelay::negotiate {

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

// Returns all uses that are neither ordered nor failed, as if they had not begun. A use in flight comes
// before those of the same name that wait for it. A join is the last of all.
std::vector<wire::Use> Participant::take_all_back() {
  std::vector<wire::Use> uses;
  for (const auto& [name, pending] : pending_) uses.push_back(pending.use);
  for (const auto& [name, request] : own_errors_) uses.emplace_back(request);
  std::sort(uses.begin(), uses.end(),
            [](const auto& a, const auto& b) { return a.request.name < b.request.name; });
  for (const auto& [name, later] : deferred_) uses.insert(uses.end(), later.begin(), later.end());
  std::stable_partition(uses.begin(), uses.end(), [&](const auto& use) { return use.request.name != join_; });
  pending_.clear();
  own_errors_.clear();
  deferred_.clear();
  to_report_.clear();
  join_.clear();
  return uses;
}

Status Participant::apply_lock(const wire::Lock& lock, Applied& applied) {
  if (lock_.active) return Status::internal("an order locks the schedule twice");
  Schedule& schedule = applied.schedule.emplace();
  schedule.number = lock.number;
  schedule.gathers = lock.gathers;
  for (const auto& ids : lock.operations) {
    auto& tensors = schedule.operations.emplace_back();
    for (const wire::CacheId id : ids) {
      const Result<const wire::Request*> request = cache_.request_of(id);
      if (!request.ok()) return request.status();
      tensors.emplace_back(**request, cache_.base_of(id));
    }
  }
  const auto request_of = [&](wire::CacheId id) -> const wire::Request& { return **cache_.request_of(id); };
  if (!lockable(lock.operations, request_of)) return Status::internal("an order locks too many agreements");
  schedule.returned = take_all_back();
  lock_ = {};
  lock_.active = true;
  // The coordinator has dropped these reports too: they are made again after the lock.
  leave_reported_ = removal_reported_ = unflushed_ = false;
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
