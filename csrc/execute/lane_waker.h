// Wakes the threads that sleep for one lane.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "collective/fabric.h"
#include "execute/batch_queue.h"
#include "execute/progress_token.h"
#include "lock/announcements.h"

namespace roundelay::execute {

// A thread sleeps for a lane in one of three places: here, on a doorbell of the group's announcements, or
// inside a call of the fabric. Thread-safe.
class LaneWaker {
 public:
  // `fabrics`: the wakers of the fabrics whose calls sleep; they live until detach_fabrics().
  // `announcements`: null without a schedule lock.
  LaneWaker(std::vector<collective::Waker*> fabrics, std::shared_ptr<lock::Announcements> announcements)
      : announcements_(std::move(announcements)), fabrics_(std::move(fabrics)) {}

  // Ends every sleep for the lane, also one that is about to begin. Any thread.
  void wake() EXCLUDES(mutex_);
  // Sleeps until wake() or the deadline. Returns at once if wake() came before, or the queue has work and
  // no driver does it. Only the lane's thread calls it.
  void sleep(const BatchQueue& queue, const ProgressToken& token, Deadline deadline) EXCLUDES(mutex_);
  // Returns whether wake() came since the last sleep() or take_woken(). Only the lane's thread calls
  // it.
  [[nodiscard]] bool take_woken() EXCLUDES(mutex_);

  // Returns the group's announcements, which live as long as the waker. Null: the group has no schedule lock.
  [[nodiscard]] const std::shared_ptr<lock::Announcements>& announcements() const { return announcements_; }
  // Lets later calls of wake() leave the fabrics alone. Call it before they are freed.
  void detach_fabrics() EXCLUDES(mutex_);

 private:
  const std::shared_ptr<lock::Announcements> announcements_;
  Mutex mutex_;  // also held while wake() is in a fabric, so that detach_fabrics() waits for its return
  CondVar changed_;
  bool was_woken_ GUARDED_BY(mutex_) = false;
  std::vector<collective::Waker*> fabrics_ GUARDED_BY(mutex_);  // empty when detached
};

}  // namespace roundelay::execute
