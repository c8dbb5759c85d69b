#include "submit/handles.h"

#include <utility>

namespace roundelay::submit {

std::atomic<Handle> HandleTable::next_{1};

Handle HandleTable::allocate(TimePoint now) {
  const Handle handle = next_.fetch_add(1, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  exposure_.submitted(now);
  states_.emplace(handle, State{});
  return handle;
}

bool HandleTable::complete(Handle handle, Status status, TimePoint now) {
  MutexLock lock(mutex_);
  const auto found = states_.find(handle);
  if (found == states_.end() || found->second.done) return false;
  found->second = {true, std::move(status)};
  exposure_.completed(now);
  rouse_sleepers(handle);
  return true;
}

std::optional<bool> HandleTable::done(Handle handle) const {
  MutexLock lock(mutex_);
  const auto found = states_.find(handle);
  if (found == states_.end()) return std::nullopt;
  return found->second.done;
}

bool HandleTable::is_done(Handle handle) const {
  const auto found = states_.find(handle);
  return found == states_.end() || found->second.done;
}

// Each by itself: the others would wake for nothing.
void HandleTable::rouse_sleepers(Handle handle) {
  for (Sleeper* const sleeper : sleepers_) {
    if (sleeper->handle_ == handle) sleeper->woken_.notify_one();
  }
}

bool HandleTable::sleep_until_done(Handle handle, Deadline deadline) {
  Sleeper sleeper(*this, handle, std::nullopt);
  return sleeper.sleep(deadline) == Sleeper::Woken::kDone;
}

HandleTable::Sleeper::Sleeper(HandleTable& table, Handle handle, std::optional<LaneId> lane)
    : table_(table), handle_(handle), lane_(lane) {
  MutexLock lock(table_.mutex_);
  table_.sleepers_.push_back(this);
}

HandleTable::Sleeper::~Sleeper() {
  MutexLock lock(table_.mutex_);
  table_.sleepers_.remove(this);
}

HandleTable::Sleeper::Woken HandleTable::Sleeper::sleep(Deadline deadline) {
  MutexLock lock(table_.mutex_);
  while (!table_.is_done(handle_)) {
    if (std::exchange(invited_, false)) return Woken::kInvited;
    if (deadline.passed()) return Woken::kDeadline;
    woken_.wait_until(table_.mutex_, deadline);
  }
  return Woken::kDone;
}

bool HandleTable::Sleeper::take_invitation() {
  MutexLock lock(table_.mutex_);
  return std::exchange(invited_, false);
}

bool HandleTable::invite(LaneId lane) {
  MutexLock lock(mutex_);
  for (Sleeper* const sleeper : sleepers_) {
    if (sleeper->lane_ != lane || is_done(sleeper->handle_)) continue;
    sleeper->invited_ = true;
    sleeper->woken_.notify_one();
    return true;
  }
  return false;
}

std::optional<Status> HandleTable::take(Handle handle) {
  MutexLock lock(mutex_);
  const auto found = states_.find(handle);
  if (found == states_.end() || !found->second.done) return std::nullopt;
  Status status = std::move(found->second.status);
  states_.erase(found);
  return status;
}

void HandleTable::begin_wait() {
  MutexLock lock(mutex_);
  exposure_.wait_begins(steady_now());
}

std::optional<Exposure::Wait> HandleTable::end_wait() {
  MutexLock lock(mutex_);
  return exposure_.wait_ends(steady_now());
}

Exposure::Times HandleTable::exposure() const {
  MutexLock lock(mutex_);
  return exposure_.until(steady_now());
}

}  // namespace roundelay::submit
