// Progress is a token, not a thread: who holds it does the work. A thread that is blocked in synchronize may
// take it and do everything itself; a background thread is the fallback, and stays out of the way while a
// driver is there.
#pragma once

#include "base/annotations.h"

namespace roundelay::runtime {

class ProgressToken {
 public:
  // Background: waits while a driver has or wants the token. Held only for one short step at a time.
  void acquire_background() EXCLUDES(mutex_);
  void release_background() EXCLUDES(mutex_);

  // Driver: waits for the background's step to end; false at once if another driver is there.
  [[nodiscard]] bool acquire_driver() EXCLUDES(mutex_);
  void release_driver() EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  CondVar changed_;
  bool background_ GUARDED_BY(mutex_) = false;
  bool driver_ GUARDED_BY(mutex_) = false;  // has it, or waits for the background's step to end
  int parked_ GUARDED_BY(mutex_) = 0;
};

// The token for one scope.
class BackgroundHold {
 public:
  explicit BackgroundHold(ProgressToken& token) : token_(token) { token_.acquire_background(); }
  ~BackgroundHold() { token_.release_background(); }
  BackgroundHold(const BackgroundHold&) = delete;
  BackgroundHold& operator=(const BackgroundHold&) = delete;

 private:
  ProgressToken& token_;
};

class DriverHold {
 public:
  explicit DriverHold(ProgressToken& token) : token_(token), held_(token.acquire_driver()) {}
  ~DriverHold() {
    if (held_) token_.release_driver();
  }
  DriverHold(const DriverHold&) = delete;
  DriverHold& operator=(const DriverHold&) = delete;
  [[nodiscard]] explicit operator bool() const { return held_; }

 private:
  ProgressToken& token_;
  const bool held_;
};

}  // namespace roundelay::runtime
