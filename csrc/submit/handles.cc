#include "submit/handles.h"

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
  CondVar* completed = nullptr;
  {
    MutexLock lock(mutex_);
    const auto found = states_.find(handle);
    if (found == states_.end() || found->second.done) return false;
    found->second = {true, std::move(status)};
    exposure_.completed(now);
    if (Sleepers& sleepers = sleepers_of(handle); sleepers.threads > 0) completed = &sleepers.completed;
  }
  // Without the lock, which a thread that wakes takes first.
  if (completed != nullptr) completed->notify_all();
  return true;
}

std::optional<bool> HandleTable::done(Handle handle) const {
  MutexLock lock(mutex_);
  const auto found = states_.find(handle);
  if (found == states_.end()) return std::nullopt;
  return found->second.done;
}

bool HandleTable::sleep_until_done(Handle handle, Deadline deadline) {
  MutexLock lock(mutex_);
  Sleepers& sleepers = sleepers_of(handle);
  ++sleepers.threads;
  bool done = false;
  while (true) {
    const auto found = states_.find(handle);
    done = found == states_.end() || found->second.done;
    if (done || deadline.passed()) break;
    sleepers.completed.wait_until(mutex_, deadline);
  }
  --sleepers.threads;
  return done;
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
