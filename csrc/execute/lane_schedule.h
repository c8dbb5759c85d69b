// A lane under a schedule lock (lock/schedule_lock.h): it queues the operations that all members have
// announced, without an order from the coordinator.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "execute/batch_queue.h"
#include "execute/lane_recorder.h"
#include "execute/lane_waker.h"
#include "execute/progress_token.h"
#include "submit/table.h"

namespace roundelay::execute {

// Thread-safe, but for the rules at each function. Its lock is taken before the table's and the queue's.
class LaneSchedule {
 public:
  // The calls by which it reports to the control plane. None may block.
  struct Reports {
    // The schedule has to end, or has left submissions to negotiate. enter(), driver_nap() and sleep() call
    // it.
    std::function<void()> wake_negotiator;
    // The members' cells are broken: communication is over. enter() or end() call it, once at most.
    std::function<void(const Status& why)> fault;
  };

  // The references outlive this object.
  LaneSchedule(submit::TensorTable& table, BatchQueue& queue, LaneWaker& waker, LaneRecorder& recorder,
               Reports reports)
      : table_(table), queue_(queue), waker_(waker), recorder_(recorder), reports_(std::move(reports)) {}

  // Follows the schedule that the table has begun. `sequence`: the order that began it. Only the holder of
  // the negotiation token calls begin() and end().
  void begin(std::uint64_t sequence) EXCLUDES(entering_);
  // Queues the operations at all positions before `from` that are not queued yet, and ends the schedule.
  void end(std::uint64_t from) EXCLUDES(entering_);

  // Returns whether this rank announces the next operation instead of negotiating it. Any thread.
  [[nodiscard]] bool open() const { return table_.schedule_open(); }
  // Returns whether all members have announced the next operation. Any thread.
  [[nodiscard]] bool may_enter() const { return table_.may_enter(); }
  // Queues every operation that all members have announced. False: there was none. Only the holder of the
  // lane's token calls it.
  bool enter() EXCLUDES(entering_);

  // Returns the sleep of the holder of the lane's token until all members have announced the next operation.
  // No pause if they have, or if the schedule is no longer open. Call it while open().
  [[nodiscard]] Nap driver_nap();
  // Returns whether the holder of the lane's token has nothing to do but wait for the next operation, which
  // messages tell of (lock/announcements.h). Any thread.
  [[nodiscard]] bool waits_for_messages() const;
  // Returns when a thread that sleeps in the channel instead of in driver_nap() has to look again; in the
  // past if waits_for_messages() no longer holds.
  [[nodiscard]] Deadline message_deadline();
  // Sleeps until all members have announced the next operation, LaneWaker::wake() or the deadline. Returns
  // at once if the queue has work and no driver does it, or if there is no schedule. Only the lane's thread
  // calls it. `token`: the lane's.
  void sleep(const ProgressToken& token, Deadline deadline);

 private:
  friend class ScheduleWatch;
  void begin_watch();
  void leave_watch();
  void end_watch();
  // Lets announcements wake the lane's thread, and wakes it for those that came meanwhile.
  void stop_sparing();
  std::uint32_t arm_unless_watched();

  void run(lock::Entered entered) REQUIRES(entering_);
  std::optional<Deadline> look();

  submit::TensorTable& table_;
  BatchQueue& queue_;
  LaneWaker& waker_;
  LaneRecorder& recorder_;
  const Reports reports_;
  std::atomic<int> watches_{0};  // while there are some, announcements do not wake the lane's thread
  std::atomic<bool> sleeps_spared_{false};  // that thread went to sleep under the present watches
  Mutex entering_;  // held from entering a position until it is queued, so that positions stay in order
  std::uint64_t sequence_ GUARDED_BY(entering_) = 0;  // the order that began the schedule
  bool faulted_ GUARDED_BY(entering_) = false;        // a fault was reported
};

// A thread that waits for an operation keeps a watch: it looks itself for operations that all members have
// announced. While the watch lives, announcements do not wake the lane's thread. Watches may be nested and
// overlap. The schedule outlives the watch.
class ScheduleWatch {
 public:
  explicit ScheduleWatch(LaneSchedule& schedule) : schedule_(&schedule) { schedule.begin_watch(); }
  // Wakes the lane's thread if an operation was announced meanwhile.
  ~ScheduleWatch() {
    if (schedule_ != nullptr) schedule_->end_watch();
  }
  ScheduleWatch(const ScheduleWatch&) = delete;
  ScheduleWatch& operator=(const ScheduleWatch&) = delete;

  // Lets the watch end without a wake-up, as the thread calls Engine::wait() next, which makes a watch of its
  // own: announcements still do not wake the lane's thread until that watch ends.
  void leave_to_wait() { std::exchange(schedule_, nullptr)->leave_watch(); }

 private:
  LaneSchedule* schedule_;
};

}  // namespace roundelay::execute
