// Lets a caller wait for the end of lanes: until their last orders have come, or until their work is done.
#pragma once

#include <atomic>
#include <functional>
#include <set>

#include "base/annotations.h"
#include "base/group.h"

namespace roundelay::runtime {

// Thread-safe.
class OpenLanes {
 public:
  // The lane gets orders from now on, until close().
  void add(LaneId lane) EXCLUDES(mutex_);
  // The lane's last order has come. Does nothing if the lane is not open.
  void close(LaneId lane) EXCLUDES(mutex_);
  // Ends all waits, those to come too. Call it when communication is over.
  void abort() EXCLUDES(mutex_);

  // Sleep until the lane, or every lane, is closed or abort() is called. Return false at the deadline.
  [[nodiscard]] bool wait_until_closed(LaneId lane, Deadline deadline) EXCLUDES(mutex_);
  [[nodiscard]] bool wait_until_all_closed(Deadline deadline) EXCLUDES(mutex_);

  // Sleeps while `busy` returns true, until abort() or until the deadline. note_idle() makes it ask again.
  // `busy` must not call this object.
  void wait_while(const std::function<bool()>& busy, Deadline deadline) EXCLUDES(mutex_);
  // Wakes wait_while(): a lane or a device has finished its work. Takes the lock only while a thread waits
  // for that.
  void note_idle() EXCLUDES(mutex_) {
    // A read-modify-write, so that one of the two threads sees the other: this one the waiter, or the waiter
    // the idle lane.
    if (idle_waiters_.fetch_add(0, std::memory_order_acq_rel) > 0) notify();
  }

 private:
  void notify() EXCLUDES(mutex_);

  std::atomic<int> idle_waiters_{0};
  Mutex mutex_;
  CondVar changed_;
  bool aborted_ GUARDED_BY(mutex_) = false;
  std::set<LaneId> open_ GUARDED_BY(mutex_);
};

}  // namespace roundelay::runtime
