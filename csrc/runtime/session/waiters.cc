#include "runtime/session/waiters.h"

#include <algorithm>

namespace roundelay::runtime {
namespace {

constexpr int kMostMisses = 10;  // then 1024 waits expect no others

}  // namespace

bool Waiters::come() {
  MutexLock lock(mutex_);
  ++waiting_;
  if (waiting_ > 1 && waiting_ == together_) misses_ = std::max(misses_ - 1, 0);  // all have come
  together_ = std::max(together_, waiting_);
  if (waiting_ == together_) return false;
  return alone_ == 0 || --alone_ == 0;
}

void Waiters::go() {
  MutexLock lock(mutex_);
  --waiting_;
}

void Waiters::missed() {
  MutexLock lock(mutex_);
  if (waiting_ >= together_) return;  // they have come after all
  together_ = waiting_;
  misses_ = std::min(misses_ + 1, kMostMisses);
  alone_ = 1 << misses_;
}

bool Waiters::several() const {
  MutexLock lock(mutex_);
  return together_ > 1;
}

bool Waiters::others() const {
  MutexLock lock(mutex_);
  return waiting_ > 1;
}

}  // namespace roundelay::runtime
