// The schedule lock on the members' side: what becomes of uses in between, and how it ends.
#include <algorithm>
#include <utility>

#include "negotiate/participant.h"

namespace roundelay::negotiate {

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
