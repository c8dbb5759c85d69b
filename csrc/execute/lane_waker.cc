#include "execute/lane_waker.h"

namespace roundelay::execute {

void LaneWaker::wake() {
  MutexLock lock(mutex_);
  was_woken_ = true;
  changed_.notify_all();
  if (announcements_) announcements_->wake();
  for (collective::Waker* const fabric : fabrics_) fabric->wake();
}

void LaneWaker::sleep(const BatchQueue& queue, const ProgressToken& token, Deadline deadline) {
  MutexLock lock(mutex_);
  while (!was_woken_ && !deadline.passed()) {
    if (queue.has_work() && !token.driven()) break;
    changed_.wait_until(mutex_, deadline);
  }
  was_woken_ = false;
}

bool LaneWaker::take_woken() {
  MutexLock lock(mutex_);
  return std::exchange(was_woken_, false);
}

void LaneWaker::detach_fabrics() {
  MutexLock lock(mutex_);
  fabrics_.clear();
}

}  // namespace roundelay::execute
