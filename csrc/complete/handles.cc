#include "complete/handles.h"

#include <utility>

namespace roundelay::complete {

std::atomic<Handle> HandleTable::next_{1};

Handle HandleTable::allocate(TimePoint now) {
  const Handle handle = next_.fetch_add(1, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  exposure_.submitted(now);
  states_.emplace(handle, State{});
  return handle;
}

bool HandleTable::complete(Handle handle, Status status, TimePoint now) {
  const FutexWord* completed = nullptr;
  {
    MutexLock lock(mutex_);
    const auto found = states_.find(handle);
    if (found == states_.end() || found->second.done) return false;
    found->second = {true, std::move(status)};
    exposure_.completed(now);
    Sleepers& sleepers = sleepers_of(handle);
    if (sleepers.threads > 0) {
      sleepers.completed.fetch_add(1);
      completed = &sleepers.completed;
    }
  }
  // Without the lock, which a thread that wakes takes first. At worst a thread wakes that sleeps for another
  // handle.
  if (completed != nullptr) futex_wake(*completed);
  return true;
}

std::optional<bool> HandleTable::done(Handle handle) const {
  MutexLock lock(mutex_);
  const auto found = states_.find(handle);
  if (found == states_.end()) return std::nullopt;
  return found->second.done;
}

bool HandleTable::sleep_until_done(Handle handle, Deadline deadline) {
  bool counted = false;
  while (true) {
    const FutexWord* completed = nullptr;
    std::uint32_t seen = 0;
    {
      MutexLock lock(mutex_);
      const auto found = states_.find(handle);
      const bool done = found == states_.end() || found->second.done;
      Sleepers& sleepers = sleepers_of(handle);
      if (done || deadline.passed()) {
        sleepers.threads -= counted ? 1 : 0;
        return done;
      }
      sleepers.threads += std::exchange(counted, true) ? 0 : 1;
      completed = &sleepers.completed;
      seen = completed->load();
    }
    futex_wait(*completed, seen, deadline);
  }
}

std::optional<Status> HandleTable::take_status(Handle handle) {
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

}  // namespace roundelay::complete
