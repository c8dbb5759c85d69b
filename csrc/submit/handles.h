// Handles: what a submission gives the caller, completed exactly once, waited for asleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>

#include "base/annotations.h"
#include "base/group.h"
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

  // One caller's sleep. Where callers take turns in working for all that wait for the same lane, it exists
  // before the caller looks whether somebody works: who stops working sees it then.
  class Sleeper {
   public:
    enum class Woken : unsigned char { kDone, kInvited, kDeadline };

    // `lane`: whose work the caller could do; none: it is never invited to.
    Sleeper(HandleTable& table, Handle handle, std::optional<LaneId> lane);
    ~Sleeper();
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;

    // An invitation that came before ends it, too.
    Woken sleep(Deadline deadline);
    // One that nothing was made of: it is to be passed on.
    [[nodiscard]] bool take_invitation();

   private:
    friend class HandleTable;
    HandleTable& table_;
    const Handle handle_;
    const std::optional<LaneId> lane_;
    bool invited_ = false;  // with the table's mutex, as the rest
    CondVar woken_;
  };
  // Wakes the caller that has waited longest for something of this lane and is not done: it is to work now.
  // False if there is none.
  bool invite(LaneId lane) EXCLUDES(mutex_);
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
  [[nodiscard]] bool is_done(Handle handle) const REQUIRES(mutex_);
  void rouse_sleepers(Handle handle) REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::list<Sleeper*> sleepers_ GUARDED_BY(mutex_);  // who came first is first
  Exposure exposure_ GUARDED_BY(mutex_);
  std::unordered_map<Handle, State> states_ GUARDED_BY(mutex_);
  static std::atomic<Handle> next_;  // across inits, so that a stale handle is unknown and not someone else's
};

}  // namespace roundelay::submit
