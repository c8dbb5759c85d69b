// The abort word: set once, by the first cause; every wait looks at it.
#pragma once

#include <atomic>

#include "base/annotations.h"
#include "base/status.h"

namespace roundelay {

// Thread-safe. `raised()` is one relaxed-cost load, for hot loops.
class AbortToken {
 public:
  // The first caller wins and gets true; later causes are dropped.
  bool raise(Status cause) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (raised_.load(std::memory_order_relaxed)) return false;
    cause_ = std::move(cause);
    raised_.store(true, std::memory_order_release);
    return true;
  }
  [[nodiscard]] bool raised() const { return raised_.load(std::memory_order_acquire); }
  // OK while nothing was raised.
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
