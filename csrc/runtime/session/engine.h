// Runs the negotiator and the lanes: one coordination thread, one background thread for each lane, and the
// callers that wait.
//
// Thread         holds                          sleeps in
//   coordination   the negotiation token          Channel::wait
//   of a lane      that lane's token              Lane::wait_for_work; a back-off while a collective runs
//   a waiter       the negotiation token, or      Channel::wait_polling; a back-off while a collective
//   runs;
//                  that of its handle's lane      HandleTable::sleep_until_done, if it holds no token
//
// If a fabric or the channel tolerates one thread only, the coordination thread runs the lanes too, and
// waiters hold no token.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/annotations.h"
#include "channel/channel.h"
#include "runtime/lane/lane.h"
#include "runtime/lane/progress_token.h"
#include "runtime/session/negotiator.h"
#include "runtime/session/open_lanes.h"
#include "submit/handles.h"

namespace roundelay::runtime {

// Any thread may call the public functions, except where a comment says otherwise.
class Engine {
 public:
  struct Options {
    bool crowded = false;     // ranks outnumber cores: waiters never spin
    bool one_thread = false;  // only one thread may call the fabrics
    // The coordination thread calls it at the time that the last call returned, or earlier.
    std::function<Deadline(TimePoint now)> housekeeping;
  };

  // The references outlive the engine. Starts no thread.
  Engine(channel::Channel& channel, Negotiator& negotiator, submit::HandleTable& handles,
         OpenLanes& open_lanes, Options options);
  ~Engine() { stop(); }

  // Starts the threads. Later calls do nothing.
  void start();
  // Joins the threads. What is in flight stays as it is. One thread only.
  void stop();

  // Starts the lane's thread if the engine runs.
  void add_lane(std::shared_ptr<Lane> lane) EXCLUDES(lane_threads_mutex_);
  // Joins the lane's thread. The lane must have no work, and get none.
  void remove_lane(const Lane& lane) EXCLUDES(lane_threads_mutex_);

  // Makes the negotiator step soon: something was submitted, or its inbox has something.
  void wake() { channel_.wake(); }
  // Makes the coordination thread look soon, also if a waiter runs the negotiator: that one does no
  // housekeeping.
  void wake_background() {
    attention_.store(true, std::memory_order_release);
    channel_.wake();
  }
  // Wakes the threads of lanes with work, except that of `but_for`: there is more work, or all of it is to
  // fail.
  void wake_lanes(const Lane* but_for = nullptr);

  // Returns true when the handle is done, false at the deadline. The caller runs the handle's lane and the
  // negotiator itself where it may, so nobody needs to be woken for what it has submitted before.
  bool wait(submit::Handle handle, LaneId lane, Deadline deadline);
  // Runs the task with the negotiation token held, on the coordination thread if fabrics want one thread.
  // Returns when the task is over. Do not call it while you hold a token, nor during stop().
  void negotiate(const std::function<void()>& task);
  // Runs the task in the thread in which fabrics are made and freed, which may be the caller's. Restrictions
  // as for negotiate().
  void run_where_fabrics_live(const std::function<void()>& task);
  // After an abort, or when the lane's thread is gone: steps the lane while that moves something. Each step
  // fails work.
  void fail_remaining_work(Lane& lane);
  [[nodiscard]] bool one_thread() const { return one_thread_; }

 private:
  // A lane and its thread.
  struct LaneThread {
    std::shared_ptr<Lane> lane;
    std::atomic<bool> leaving{false};
    std::thread thread;
  };
  using LaneThreads = std::vector<std::shared_ptr<LaneThread>>;

  // The bodies of the threads.
  void coordinate();
  void run_lane(LaneThread& lane_thread);

  void begin(const std::shared_ptr<LaneThread>& lane_thread);
  // For the holder of the lane's token.
  bool step(Lane& lane);
  // Steps all lanes once, on the coordination thread.
  bool step_lanes();
  // Each runs its part until the handle is done, the deadline has passed, or nothing is left to do here.
  // Returns false if another thread has the token, or if there was nothing to do.
  bool drive_lane(Lane& lane, submit::Handle handle, Deadline deadline);
  bool drive_negotiation(Lane& lane, submit::Handle handle, Deadline deadline);
  [[nodiscard]] bool done(submit::Handle handle) const { return handles_.done(handle).value_or(true); }
  [[nodiscard]] bool lanes_have_work() const;
  [[nodiscard]] bool lanes_watch_devices() const;
  [[nodiscard]] std::shared_ptr<const LaneThreads> lane_threads() const EXCLUDES(lane_threads_mutex_);

  channel::Channel& channel_;
  Negotiator& negotiator_;
  submit::HandleTable& handles_;
  OpenLanes& open_lanes_;
  const Options options_;
  const bool one_thread_;

  ProgressToken negotiation_;
  // When the coordination thread looks next. For the holder of the negotiation token.
  TimePoint background_due_ = TimePoint::min();
  std::atomic<bool> stopping_{false};
  std::atomic<bool> attention_{false};  // set until the coordination thread has looked
  std::once_flag started_;
  std::thread coordination_;

  mutable Mutex lane_threads_mutex_;
  bool running_ GUARDED_BY(lane_threads_mutex_) = false;
  // Copied on change, so that readers hold the lock only to take the pointer.
  std::shared_ptr<const LaneThreads> lane_threads_ GUARDED_BY(lane_threads_mutex_) =
      std::make_shared<LaneThreads>();
};

}  // namespace roundelay::runtime
