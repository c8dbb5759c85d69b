// A progress token belongs to a lane, or to the negotiation; the thread that holds it does the work there. A
// thread that is blocked in synchronize may take the token as a driver and do everything itself. Otherwise a
// background thread does the work; it waits or sleeps while there is a driver.
#pragma once

#include "base/annotations.h"

namespace roundelay::execute {

// Thread-safe. Not recursive.
class ProgressToken {
 public:
  // Takes the token for a background thread, for one step, which never blocks. Waits while a driver has or
  // wants the token.
  void acquire_background() EXCLUDES(mutex_);
  // Does the same, but returns false at once if a driver has or wants the token.
  [[nodiscard]] bool try_acquire_background() EXCLUDES(mutex_);
  void release_background() EXCLUDES(mutex_);
  // Returns whether a driver has or wants the token.
  [[nodiscard]] bool driven() const EXCLUDES(mutex_);

  // Takes the token for a driver, which keeps it as long as it likes. Waits until the background's step ends.
  // False, at once: another driver has the token.
  [[nodiscard]] bool acquire_driver() EXCLUDES(mutex_);
  void release_driver() EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool background_ GUARDED_BY(mutex_) = false;  // a background thread has the token
  bool driver_ GUARDED_BY(mutex_) = false;      // a driver has the token, or waits for it
  int parked_ GUARDED_BY(mutex_) = 0;           // background threads that wait
};

// Holds the token as a background thread, for one scope.
class BackgroundHold {
 public:
  explicit BackgroundHold(ProgressToken& token) : token_(token) { token_.acquire_background(); }
  ~BackgroundHold() { token_.release_background(); }
  BackgroundHold(const BackgroundHold&) = delete;
  BackgroundHold& operator=(const BackgroundHold&) = delete;

 private:
  ProgressToken& token_;
};

// Does the same unless a driver has or wants the token. Converts to false then.
class BackgroundTry {
 public:
  explicit BackgroundTry(ProgressToken& token) : token_(token), held_(token.try_acquire_background()) {}
  ~BackgroundTry() {
    if (held_) token_.release_background();
  }
  BackgroundTry(const BackgroundTry&) = delete;
  BackgroundTry& operator=(const BackgroundTry&) = delete;
  [[nodiscard]] explicit operator bool() const { return held_; }

 private:
  ProgressToken& token_;
  const bool held_;
};

// Holds the token as a driver, for one scope. Converts to false if another driver has it.
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

}  // namespace roundelay::execute
