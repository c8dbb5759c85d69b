// AbortToken: a flag that the first fatal error sets and nothing clears. Every wait polls it and gives up
// when it is set.
#pragma once

#include <atomic>

#include "base/annotations.h"
#include "base/status.h"

namespace roundelay {

// Thread-safe. raised() is one atomic load and fits into hot loops.
class AbortToken {
 public:
  // Sets the flag and keeps `cause`. Returns true for the first caller; drops the causes of later ones.
  bool raise(Status cause) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (raised_.load(std::memory_order_relaxed)) return false;
    cause_ = std::move(cause);
    raised_.store(true, std::memory_order_release);
    return true;
  }
  [[nodiscard]] bool raised() const { return raised_.load(std::memory_order_acquire); }
  // Returns the first caller's cause; OK before raise().
  [[nodiscard]] Status cause() const EXCLUDES(mutex_) {
    if (!raised()) return {};
    MutexLock lock(mutex_);
    return cause_;
  }

 private:
  mutable Mutex mutex_;
  std::atomic<bool> raised_{false};
  Status cause_ GUARDED_BY(mutex_);
};

}  // namespace roundelay
