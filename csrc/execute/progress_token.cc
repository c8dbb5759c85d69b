#include "execute/progress_token.h"

namespace roundelay::execute {

void ProgressToken::acquire_background() {
  MutexLock lock(mutex_);
  ++parked_;
  while (driver_ || background_) changed_.wait_until(mutex_, Deadline::never());
  --parked_;
  background_ = true;
}

bool ProgressToken::try_acquire_background() {
  MutexLock lock(mutex_);
  ++parked_;
  while (background_ && !driver_) changed_.wait_until(mutex_, Deadline::never());
  --parked_;
  if (driver_) return false;
  background_ = true;
  return true;
}

void ProgressToken::release_background() {
  MutexLock lock(mutex_);
  background_ = false;
  if (driver_ || parked_ > 0) changed_.notify_all();
}

bool ProgressToken::driven() const {
  MutexLock lock(mutex_);
  return driver_;
}

bool ProgressToken::acquire_driver() {
  MutexLock lock(mutex_);
  if (driver_) return false;
  driver_ = true;
  while (background_) changed_.wait_until(mutex_, Deadline::never());
  return true;
}

void ProgressToken::release_driver() {
  MutexLock lock(mutex_);
  driver_ = false;
  if (parked_ > 0) changed_.notify_all();
}

}  // namespace roundelay::execute
