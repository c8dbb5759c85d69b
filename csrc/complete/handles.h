// Keeps the handles of operations. submit() gives the caller one for each operation. A handle is completed
// exactly once, and the caller may sleep until then.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "base/annotations.h"
#include "base/futex.h"
#include "base/status.h"
#include "complete/exposure.h"

namespace roundelay::complete {

using Handle = std::int64_t;  // positive; never reused within a process

// Thread-safe.
class HandleTable {
 public:
  // Returns a new handle. Its operation counts as under way from `now` until complete().
  Handle allocate(TimePoint now = steady_now()) EXCLUDES(mutex_);
  // Stores the status and wakes the handle's waiters. False: the handle is unknown or was completed before;
  // then it changes nothing.
  bool complete(Handle handle, Status status, TimePoint now = steady_now()) EXCLUDES(mutex_);
  // Returns whether the handle is done. Nothing: the handle is unknown (never given, or already taken).
  [[nodiscard]] std::optional<bool> done(Handle handle) const EXCLUDES(mutex_);
  // Sleeps until the handle is done or the deadline. Does not take the handle. True: it is done, or unknown.
  bool sleep_until_done(Handle handle, Deadline deadline) EXCLUDES(mutex_);
  // Returns the status of a done handle and forgets the handle. Nothing: it is unknown or not done.
  std::optional<Status> take_status(Handle handle) EXCLUDES(mutex_);

  // Counts a thread of the program that begins to wait for communication. A thread may call it several times,
  // and then calls end_wait() as often.
  void begin_wait() EXCLUDES(mutex_);
  // Ends such a wait. If none is left, returns the program's whole wait: from the first begin to the last
  // end.
  std::optional<Exposure::Wait> end_wait() EXCLUDES(mutex_);
  // Returns the times up to now.
  [[nodiscard]] Exposure::Times exposure() const EXCLUDES(mutex_);

 private:
  struct State {
    bool done = false;
    Status status;
  };
  // The threads that sleep for handles with the same remainder (sleepers_of()). So few threads wake for a
  // handle that is not theirs. A futex costs two system calls a sleep; a condition variable costs four, as
  // its waiters take the lock again.
  struct Sleepers {
    FutexWord completed{0};
    int threads = 0;
  };
  Sleepers& sleepers_of(Handle handle) REQUIRES(mutex_) {
    return sleepers_[static_cast<std::size_t>(handle) % sleepers_.size()];
  }

  mutable Mutex mutex_;
  std::array<Sleepers, 16> sleepers_ GUARDED_BY(mutex_);
  Exposure exposure_ GUARDED_BY(mutex_);
  std::unordered_map<Handle, State> states_ GUARDED_BY(mutex_);
  static std::atomic<Handle> next_;  // counts across inits, so that a stale handle stays unknown
};

}  // namespace roundelay::complete
