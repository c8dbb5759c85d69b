// The table under a schedule lock: it announces the requests that belong to the schedule and queues the rest.
#include <algorithm>
#include <utility>

#include "submit/table.h"

namespace roundelay::submit {

// The submitting thread calls it after it has filed the entry: so the table has an entry before a rank can
// enter it.
void TensorTable::take_in(const wire::Request& request, const std::string& values) {
  if (!schedule_.file(request, schedule_.gathers() ? steady_now() : TimePoint{}, values)) {
    queue_.emplace_back(request, values);
    return announce();
  }
  if (!std::exchange(watched_, true)) unwatched_submission_.store(true, std::memory_order_relaxed);
  if (request.operation == Operation::kAgreement) {
    const LockedAgreement& agreement = *schedule_.agreement(request.name);
    announcements_->show(agreement.cell_number(), agreement.cell());
  }
  announce();
}

// Publishes the schedule's state to readers without the lock, and newly announced positions to the peers.
void TensorTable::announce() {
  scheduled_.store(schedule_.active(), std::memory_order_release);
  schedule_open_.store(schedule_.open(), std::memory_order_release);
  schedule_gathers_.store(schedule_.gathers(), std::memory_order_release);
  if (schedule_.announced() == announced_ || !schedule_.active()) return;
  announced_ = schedule_.announced();
  announcements_->announce(announcement(schedule_.number(), announced_));
}

void TensorTable::begin_schedule(std::uint64_t number, const ScheduleLock::Operations& operations,
                                 std::vector<wire::Use> returned, bool gathers) {
  MutexLock lock(mutex_);
  if (!closed_.ok()) return;
  schedule_.begin(number, operations, gathers);
  announced_ = 0;
  watched_ = true;
  if (!can_lock()) schedule_.freeze();
  returned.insert(returned.end(), queue_.begin(), queue_.end());
  queue_.clear();
  for (const wire::Use& use : returned) take_in(use.request, use.values);
  announce();
}

void TensorTable::freeze() {
  MutexLock lock(mutex_);
  schedule_.freeze();
  announce();
}

std::optional<std::uint64_t> TensorTable::frozen_after() const {
  MutexLock lock(mutex_);
  if (!schedule_.active() || schedule_.open()) return std::nullopt;
  return schedule_.announced();
}

void TensorTable::end_schedule() {
  MutexLock lock(mutex_);
  const std::vector<wire::Use> waiting = schedule_.end();
  queue_.insert(queue_.begin(), waiting.begin(), waiting.end());
  announce();
}

Duration TensorTable::patience(complete::Handle handle) const {
  if (!gathers()) return Duration{0};
  MutexLock lock(mutex_);
  return blocked(handle) ? schedule_.patience() : Duration{0};
}

bool TensorTable::waited_for(complete::Handle handle) {
  MutexLock lock(mutex_);
  if (!blocked(handle)) return false;
  schedule_.freeze();
  announce();
  return true;
}

// Returns whether the operation comes after one that is not wholly submitted here.
bool TensorTable::blocked(complete::Handle handle) const {
  if (!schedule_.open() || !schedule_.any_blocked()) return false;
  return std::any_of(entries_.begin(), entries_.end(), [&](const auto& filed) {
    const auto& [name, entry] = filed;
    return entry != nullptr && entry->handle == handle && schedule_.blocked(name);
  });
}

bool TensorTable::may_enter() const {
  if (!scheduled()) return false;
  MutexLock lock(mutex_);
  return schedule_.active() && can_lock() && schedule_.may_enter(announcements_->least(schedule_.number()));
}

std::optional<Entered> TensorTable::enter() {
  if (!scheduled()) return std::nullopt;
  MutexLock lock(mutex_);
  if (!schedule_.active() || !can_lock()) return std::nullopt;
  return with_result(schedule_.enter(announcements_->least(schedule_.number())));
}

std::optional<Entered> TensorTable::enter_before(std::uint64_t until) {
  MutexLock lock(mutex_);
  return with_result(schedule_.enter(until));
}

// Adds the result of an agreement.
std::optional<Entered> TensorTable::with_result(std::optional<ScheduleLock::Names> names) {
  if (!names) return std::nullopt;
  Entered entered{std::move(*names)};
  LockedAgreement* const agreement = schedule_.agreement(entered.names.front());
  if (agreement == nullptr) return entered;
  std::vector<Cell> cells;
  cells.reserve(ranks_.size());
  for (int member = 0; member < announcements_->members(); ++member)
    cells.push_back(announcements_->cell(member, agreement->cell_number()));
  Result<Agreed> agreed = agreement->enter(cells, ranks_);
  if (agreed.ok()) entered.agreed = std::move(*agreed);
  entered.fault = agreed.status();
  return entered;
}

Deadline TensorTable::look(TimePoint now) {
  MutexLock lock(mutex_);
  const Deadline next = schedule_.look(now);
  watched_ = next != Deadline::never();
  announce();
  return next;
}

}  // namespace roundelay::submit
