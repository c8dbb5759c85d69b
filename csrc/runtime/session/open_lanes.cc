#include "runtime/session/open_lanes.h"

namespace roundelay::runtime {

void OpenLanes::add(LaneId lane) {
  MutexLock lock(mutex_);
  open_.insert(lane);
}

void OpenLanes::close(LaneId lane) {
  MutexLock lock(mutex_);
  open_.erase(lane);
  changed_.notify_all();
}

void OpenLanes::abort() {
  MutexLock lock(mutex_);
  aborted_ = true;
  changed_.notify_all();
}

bool OpenLanes::wait_until_closed(LaneId lane, Deadline deadline) {
  MutexLock lock(mutex_);
  while (open_.contains(lane) && !aborted_ && !deadline.passed()) changed_.wait_until(mutex_, deadline);
  return !open_.contains(lane) || aborted_;
}

bool OpenLanes::wait_until_all_closed(Deadline deadline) {
  MutexLock lock(mutex_);
  while (!open_.empty() && !aborted_ && !deadline.passed()) changed_.wait_until(mutex_, deadline);
  return open_.empty() || aborted_;
}

void OpenLanes::wait_while(const std::function<bool()>& busy, Deadline deadline) {
  MutexLock lock(mutex_);
  idle_waiters_.fetch_add(1, std::memory_order_acq_rel);
  while (busy() && !aborted_ && !deadline.passed()) changed_.wait_until(mutex_, deadline);
  idle_waiters_.fetch_sub(1, std::memory_order_acq_rel);
}

void OpenLanes::notify() {
  MutexLock lock(mutex_);
  changed_.notify_all();
}

}  // namespace roundelay::runtime
