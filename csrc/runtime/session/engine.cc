#include "runtime/session/engine.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/annotations.h"
#include "base/backoff.h"

namespace roundelay::runtime {

namespace {

// Marks a caller that does nothing but look for messages (Channel::set_polling).
class Polling {
 public:
  explicit Polling(channel::Channel& channel) : channel_(channel) { channel_.set_polling(true); }
  ~Polling() { channel_.set_polling(false); }
  Polling(const Polling&) = delete;
  Polling& operator=(const Polling&) = delete;

 private:
  channel::Channel& channel_;
};

}  // namespace

Engine::Engine(channel::Channel& channel, control::Negotiator& negotiator, complete::HandleTable& handles,
               LaneThreads& lanes, bool crowded, Housekeeping housekeeping)
    : channel_(channel),
      negotiator_(negotiator),
      handles_(handles),
      lanes_(lanes),
      crowded_(crowded),
      housekeeping_(std::move(housekeeping)) {}

void Engine::start() {
  std::call_once(started_, [this] {
    coordination_ = std::thread([this] { coordinate(); });
    lanes_.start();
  });
}

void Engine::stop() {
  stopping_.store(true, std::memory_order_release);
  channel_.wake();
  if (coordination_.joinable()) coordination_.join();
  lanes_.stop();
}

void Engine::negotiate(const std::function<void()>& task) {
  start();
  Mutex mutex;
  CondVar changed;
  bool over = false;
  negotiator_.inbox().run([&] {
    task();
    MutexLock lock(mutex);
    over = true;
    changed.notify_all();
  });
  channel_.wake();
  MutexLock lock(mutex);
  while (!over) changed.wait_until(mutex, Deadline::never());
}

void Engine::coordinate() {
  Backoff backoff(true);
  while (!stopping_.load(std::memory_order_acquire)) {
    bool moved = false;
    Deadline due = Deadline::never();
    {
      execute::BackgroundHold hold(negotiation_);
      woken_.store(false, std::memory_order_release);
      moved = negotiator_.step(steady_now());
      due = negotiator_.next_due().sooner(housekeeping_(steady_now()));
      background_due_ = moved ? TimePoint::min() : due.when();
    }
    // The step's receive() may have taken a wake-up that was meant for stop() or wake_background().
    if (stopping_.load(std::memory_order_acquire)) break;
    moved = woken_.load(std::memory_order_acquire) || moved;
    if (moved && !lanes_.one_thread()) lanes_.wake();
    const bool busy = lanes_.one_thread() && lanes_.have_work();
    const bool watches = lanes_.one_thread() && lanes_.watch_devices();
    if (busy || watches) moved = lanes_.step_all() || moved;
    if (watches) due = due.sooner(Deadline::after(kDeviceWatch));
    if (moved) {
      backoff.reset();
    } else if (busy) {
      channel_.wait(due.sooner(Deadline::after(std::max(backoff.next().length(), Duration{1}))));
    } else {
      channel_.wait(due);
    }
  }
  // Sends what was posted before stop(): above all that this rank leaves.
  execute::BackgroundHold hold(negotiation_);
  static_cast<void>(negotiator_.step(steady_now()));
}

void Engine::run_where_fabrics_live(const std::function<void()>& task) {
  if (lanes_.one_thread()) {
    negotiate(task);
  } else {
    task();
  }
}

bool Engine::wait(complete::Handle handle, LaneId id, Deadline deadline) {
  const std::shared_ptr<execute::Lane> lane = lanes_.find(id);
  std::optional<execute::ScheduleWatch> watch;
  if (lane) watch.emplace(lane->schedule());
  if (done(handle)) return true;
  bool driving = !lanes_.one_thread() && lane != nullptr;
  while (driving && !done(handle) && !deadline.passed()) {
    driving = drive_lane(*lane, handle, deadline) || drive_negotiation(*lane, handle, deadline);
  }
  lanes_.wake();  // the lanes' threads take over what this caller has not done
  if (driving && done(handle)) return true;
  // The deadline has passed, or another caller drives, or no caller may. When that caller leaves, the
  // background threads take over: this thread watches no longer.
  watch.reset();
  wake();
  return handles_.sleep_until_done(handle, deadline);
}

// Drives the lane of the handle. The threads of other lanes run at the same time.
bool Engine::drive_lane(execute::Lane& lane, complete::Handle handle, Deadline deadline) {
  if (!lane.may_step()) return false;
  execute::DriverHold hold(lane.token());
  if (!hold) return false;
  // This may take long. Meanwhile the background reports what was submitted, and has the linger ended.
  if (lane.take_unreported()) wake();
  Backoff backoff(crowded_);
  while (lane.may_step() && !done(handle) && !deadline.passed()) {
    if (lanes_.step(lane)) {
      backoff.reset();
    } else {
      lane.idle(backoff).wait();
    }
  }
  return true;
}

bool Engine::drive_negotiation(execute::Lane& lane, complete::Handle handle, Deadline deadline) {
  // Another caller drives the lane. The background negotiates meanwhile.
  if (lane.may_step()) return false;
  execute::DriverHold hold(negotiation_);
  if (!hold) return false;
  const Polling polling(channel_);
  // may_step() is asked before done(): as soon as there is no work, the handles of the work are done, and
  // done() sees that.
  const auto negotiates = [&] { return !lane.may_step() && !done(handle) && !deadline.passed(); };
  while (negotiates()) {
    static_cast<void>(lane.take_unreported());  // before the step, which reports it
    if (negotiator_.step(steady_now())) {
      lanes_.wake(&lane);  // they may have new orders
    } else if (negotiates()) {
      // Asked again, because the step may have taken the wake-up that came with new work of the lane.
      Deadline due = deadline.sooner(negotiator_.next_due());
      if (lane.goes_by_schedule()) due = due.sooner(lane.schedule().message_deadline());
      channel_.wait_polling(due, crowded_ ? Duration{0} : Backoff::kSpin);
    }
  }
  // The coordination thread must look now if this thread has taken a wake-up that was meant for it, or if
  // something is now due earlier than it knows.
  const bool meant_for_it =
      stopping_.load(std::memory_order_acquire) || woken_.load(std::memory_order_acquire);
  if (meant_for_it || negotiator_.next_due().when() < background_due_) channel_.wake();
  return true;
}

}  // namespace roundelay::runtime
