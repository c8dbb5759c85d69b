// Handles: what a submission gives the caller, completed exactly once, waited for asleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "base/annotations.h"
#include "base/status.h"
#include "submit/exposure.h"

namespace roundelay::submit {

using Handle = std::int64_t;  // positive; never reused within a process

// Thread-safe.
class HandleTable {
 public:
  // Its operation is under way from `now` until complete().
  Handle allocate(TimePoint now = steady_now()) EXCLUDES(mutex_);
  // The first completion counts; later ones are ignored and return false.
  bool complete(Handle handle, Status status, TimePoint now = steady_now()) EXCLUDES(mutex_);
  // Nothing if the handle is unknown (never given, or already taken).
  [[nodiscard]] std::optional<bool> done(Handle handle) const EXCLUDES(mutex_);
  // Sleeps until the handle is done or the deadline; does not take it. False at the deadline.
  bool sleep_until_done(Handle handle, Deadline deadline) EXCLUDES(mutex_);
  // The status of a done handle, which is then forgotten.
  std::optional<Status> take(Handle handle) EXCLUDES(mutex_);

  // The program waits for communication, and goes on; any number of its threads, each also within its own
  // wait.
  void begin_wait() EXCLUDES(mutex_);
  std::optional<Exposure::Wait> end_wait() EXCLUDES(mutex_);
  [[nodiscard]] Exposure::Times exposure() const EXCLUDES(mutex_);

 private:
  struct State {
    bool done = false;
    Status status;
  };
  mutable Mutex mutex_;
  CondVar completed_;
  int sleepers_ GUARDED_BY(mutex_) = 0;
  Exposure exposure_ GUARDED_BY(mutex_);
  std::unordered_map<Handle, State> states_ GUARDED_BY(mutex_);
  static std::atomic<Handle> next_;  // across inits, so that a stale handle is unknown and not someone else's
};

}  // namespace roundelay::submit
