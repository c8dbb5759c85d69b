// Counts the threads of the program that wait at the same time. Threads whose operations end together often
// submit the next ones together. Then the first to come sleep, and the last one works for all of them.
#pragma once

#include "base/annotations.h"

namespace roundelay::runtime {

// Thread-safe.
class Waiters {
 public:
  // Counts the calling thread as a waiter, for one scope.
  class Scope {
   public:
    explicit Scope(Waiters& waiters) : waiters_(waiters), others_come_(waiters.come()) {}
    ~Scope() { waiters_.go(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

    // Returns whether more threads are likely to wait soon: as many as did lately. If they have not come when
    // the caller has slept for a while, it calls missed().
    [[nodiscard]] bool others_come() const { return others_come_; }
    // Fewer threads are expected from now on, and none for some waits, twice as many after each such miss.
    void missed() { waiters_.missed(); }

   private:
    Waiters& waiters_;
    const bool others_come_;
  };

  // Returns whether several threads have waited at once lately.
  [[nodiscard]] bool several() const EXCLUDES(mutex_);
  // Returns whether another thread waits now. A waiter calls it.
  [[nodiscard]] bool others() const EXCLUDES(mutex_);

 private:
  bool come() EXCLUDES(mutex_);
  void go() EXCLUDES(mutex_);
  void missed() EXCLUDES(mutex_);

  mutable Mutex mutex_;
  int waiting_ GUARDED_BY(mutex_) = 0;
  int together_ GUARDED_BY(mutex_) = 1;  // so many threads have waited at once lately
  int misses_ GUARDED_BY(mutex_) = 0;    // less those made up for since
  int alone_ GUARDED_BY(mutex_) = 0;     // the number of waits for which no others are expected
};

}  // namespace roundelay::runtime
