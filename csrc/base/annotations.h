// Clang's thread-safety annotations (other compilers ignore them) and the mutex types that carry them.
// GUARDED_BY: whoever reads or writes the variable holds the mutex. REQUIRES: the caller of the function
// holds it. EXCLUDES: the caller does not hold it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/clock.h"

#if defined(__clang__)
#define ROUNDELAY_TSA(x) __attribute__((x))
#else
#define ROUNDELAY_TSA(x)
#endif
#define GUARDED_BY(mutex) ROUNDELAY_TSA(guarded_by(mutex))
#define REQUIRES(...) ROUNDELAY_TSA(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) ROUNDELAY_TSA(locks_excluded(__VA_ARGS__))

namespace roundelay {

// A std::mutex and its lock, with annotations.
class ROUNDELAY_TSA(capability("mutex")) Mutex {
 public:
  void lock() ROUNDELAY_TSA(acquire_capability()) { mutex_.lock(); }
  void unlock() ROUNDELAY_TSA(release_capability()) { mutex_.unlock(); }
  bool try_lock() ROUNDELAY_TSA(try_acquire_capability(true)) { return mutex_.try_lock(); }

 private:
  std::mutex mutex_;
};

class ROUNDELAY_TSA(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ROUNDELAY_TSA(acquire_capability(mutex)) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() ROUNDELAY_TSA(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// A condition variable for Mutex. A wait returns on notification, spuriously, or at the deadline, so callers
// test their predicate in a loop.
class CondVar {
 public:
  void wait_until(Mutex& mutex, Deadline deadline) REQUIRES(mutex) {
    if (deadline == Deadline::never()) {
      cv_.wait(mutex);
    } else {
      cv_.wait_until(mutex, deadline.look(steady_now()));
    }
  }
  void notify_one() { cv_.notify_one(); }
  void notify_all() { cv_.notify_all(); }

 private:
  std::condition_variable_any cv_;
};

}  // namespace roundelay
