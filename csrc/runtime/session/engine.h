// Runs the negotiator and the lanes: one coordination thread, one background thread for each lane, and the
// callers that wait.
//
// Thread         holds                        sleeps in
//   coordination   the negotiation token        Channel::wait
//   of a lane      the lane's token             Lane::wait_for_work, or a back-off
//   a waiter       the negotiation token, or    Channel::wait_polling
//                  its handle's lane's token,   a back-off
//                  or none                      HandleTable::sleep_until_done
//
// A thread backs off (base/backoff.h) while its lane has work that waits for peers.
//
// If a fabric or the channel tolerates one thread only, the coordination thread runs the lanes too, and
// waiters hold no token.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "channel/channel.h"
#include "complete/handles.h"
#include "control/negotiator.h"
#include "execute/lane.h"
#include "execute/progress_token.h"
#include "runtime/session/lane_threads.h"

namespace roundelay::runtime {

// Any thread may call the public functions, except where a comment says otherwise.
class Engine {
 public:
  // The coordination thread calls it at the time that the last call returned, or earlier. It holds the
  // negotiation token then. A session sends its timeline there, and gives up questions that are open too
  // long.
  using Housekeeping = std::function<Deadline(TimePoint now)>;

  // The references outlive the engine. Starts no thread. `crowded`: ranks outnumber cores, so waiters never
  // spin.
  Engine(channel::Channel& channel, control::Negotiator& negotiator, complete::HandleTable& handles,
         LaneThreads& lanes, bool crowded, Housekeeping housekeeping);
  ~Engine() { stop(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Starts the threads, those of the lanes too. Later calls do nothing.
  void start();
  // Joins the threads. Operations in flight stay as they are. Only one thread may call it.
  void stop();

  // Makes the negotiator step soon: something was submitted, or its inbox has something.
  void wake() { channel_.wake(); }
  // Makes the coordination thread do its housekeeping soon, also if a waiter runs the negotiator: a waiter
  // does none.
  void wake_background() {
    woken_.store(true, std::memory_order_release);
    channel_.wake();
  }
  // Waits for a handle of this lane. Returns true when it is done, false at the deadline. The caller runs the
  // lane and the negotiator itself where it may, so nobody needs to be woken for what it has submitted
  // before.
  bool wait(complete::Handle handle, LaneId lane, Deadline deadline);
  // Runs the task with the negotiation token held, on the coordination thread if fabrics want one thread.
  // Waits until the task is over. Do not call it while you hold a token, nor during stop().
  void negotiate(const std::function<void()>& task);
  // Runs the task in the thread in which fabrics are made and freed, which may be the caller's. Restrictions
  // as for negotiate().
  void run_where_fabrics_live(const std::function<void()>& task);

 private:
  // The body of the coordination thread.
  void coordinate();
  // Each runs its part until the handle is done, the deadline has passed, or nothing is left to do here.
  // Under a schedule lock between nodes messages, and not the lane, may tell of the next operation. Returns
  // false if another thread has the token, or if there was nothing to do.
  bool drive_lane(execute::Lane& lane, complete::Handle handle, Deadline deadline);
  bool drive_negotiation(execute::Lane& lane, complete::Handle handle, Deadline deadline);
  [[nodiscard]] bool done(complete::Handle handle) const { return handles_.done(handle).value_or(true); }

  channel::Channel& channel_;
  control::Negotiator& negotiator_;
  complete::HandleTable& handles_;
  LaneThreads& lanes_;
  const bool crowded_;
  const Housekeeping housekeeping_;

  execute::ProgressToken negotiation_;
  // The time at which the coordination thread looks next. Only the holder of the negotiation token uses it.
  TimePoint background_due_ = TimePoint::min();
  std::atomic<bool> stopping_{false};
  std::atomic<bool> woken_{false};  // set until the coordination thread has looked
  std::once_flag started_;
  std::thread coordination_;
};

}  // namespace roundelay::runtime
