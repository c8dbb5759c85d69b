// Who does the work, and when: one coordination thread, one background thread a lane, and callers that wait.
//
// Threads:        holds                   sleeps in
//   coordination  negotiation token       channel.wait
//   lane (each)   that lane's token       lane.wait_for_work, or a back-off while a collective runs
//   a waiter      negotiation's, or its   channel.wait (as driver), a back-off while a collective runs, or on
//                 handle's lane's         its handle
// When a fabric or channel tolerates one thread only, the coordination thread runs the lanes too and nobody
// drives.
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
#include "submit/handles.h"

namespace roundelay::runtime {

class Engine {
 public:
  struct Options {
    bool crowded = false;     // ranks outnumber cores: never spin
    bool one_thread = false;  // fabrics may be called by one thread only
    // Called by the coordination thread now and then; returns when it wants to be called again.
    std::function<Deadline(TimePoint now)> housekeeping;
  };

  Engine(channel::Channel& channel, Negotiator& negotiator, submit::HandleTable& handles, Options options);
  ~Engine() { stop(); }

  // Starts the threads; later calls do nothing.
  void start();
  // Joins them; what is in flight stays as it is.
  void stop();

  void add_lane(std::shared_ptr<Lane> lane) EXCLUDES(lane_threads_mutex_);
  // Joins the lane's thread. The lane has no work.
  void remove_lane(const Lane& lane) EXCLUDES(lane_threads_mutex_);

  // Something was submitted, or the negotiator has news of this process: act soon.
  void wake() { channel_.wake(); }
  // Housekeeping has news, which a driver cannot act upon.
  void wake_background() {
    attention_.store(true, std::memory_order_release);
    channel_.wake();
  }
  // Lanes with work: there is more of it, or the abort word was raised and they are to fail it.
  void wake_lanes(const Lane* but_for = nullptr);

  // Returns when the handle is done or at the deadline; does the work of its lane and negotiates itself where
  // it may. What was submitted before, and nobody was woken for, is negotiated then or by the background.
  bool wait(submit::Handle handle, LaneId lane, Deadline deadline);
  // Runs `task` with the negotiation token, on the coordination thread where fabrics want one thread; returns
  // when it is over. Not for holders of a token, nor beside stop().
  void negotiate(const std::function<void()>& task);
  [[nodiscard]] bool one_thread() const { return one_thread_; }

 private:
  struct LaneThread {
    std::shared_ptr<Lane> lane;
    std::atomic<bool> leaving{false};
    std::thread thread;
  };
  using LaneThreads = std::vector<std::shared_ptr<LaneThread>>;

  void coordinate();
  void run_lane(LaneThread& lane_thread);
  void begin(const std::shared_ptr<LaneThread>& lane_thread);
  bool step_lanes();
  // Each returns true if it held a token, so that trying again makes sense.
  bool drive_lane(Lane& lane, submit::Handle handle, Deadline deadline);
  bool drive_negotiation(Lane& lane, submit::Handle handle, Deadline deadline);
  [[nodiscard]] bool done(submit::Handle handle) const { return handles_.done(handle).value_or(true); }
  [[nodiscard]] bool lanes_have_work() const;
  [[nodiscard]] bool lanes_watch_devices() const;
  [[nodiscard]] std::shared_ptr<const LaneThreads> lane_threads() const EXCLUDES(lane_threads_mutex_);

  channel::Channel& channel_;
  Negotiator& negotiator_;
  submit::HandleTable& handles_;
  const Options options_;
  const bool one_thread_;

  ProgressToken negotiation_;
  TimePoint background_due_ =
      TimePoint::min();  // when the coordination thread looks next (token's holder only)
  std::atomic<bool> stopping_{false};
  std::atomic<bool> attention_{false};  // the coordination thread is to look, whoever takes the wake-up
  std::once_flag started_;
  std::thread coordination_;

  mutable Mutex lane_threads_mutex_;
  bool running_ GUARDED_BY(lane_threads_mutex_) = false;
  std::shared_ptr<const LaneThreads> lane_threads_ GUARDED_BY(lane_threads_mutex_) =
      std::make_shared<LaneThreads>();
};

}  // namespace roundelay::runtime
