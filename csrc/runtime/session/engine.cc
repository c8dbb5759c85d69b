#include "runtime/session/engine.h"

#include <algorithm>
#include <utility>

#include "collective/backoff.h"

namespace roundelay::runtime {

namespace {

constexpr Duration kDeviceWatch = std::chrono::milliseconds(100);

// Marks a caller that waits and watches the lane's announcements itself: peers need not wake the lane's
// thread for them.
class Minding {
 public:
  explicit Minding(Lane* lane) : lane_(lane) {
    if (lane_ != nullptr) lane_->spare_thread();
  }
  ~Minding() {
    if (lane_ != nullptr) lane_->mind_schedule();
  }
  Minding(const Minding&) = delete;
  Minding& operator=(const Minding&) = delete;

 private:
  Lane* const lane_;
};

// Marks a caller that does nothing but look for messages (Channel::set_polling).
class Attending {
 public:
  explicit Attending(channel::Channel& channel) : channel_(channel) { channel_.set_polling(true); }
  ~Attending() { channel_.set_polling(false); }
  Attending(const Attending&) = delete;
  Attending& operator=(const Attending&) = delete;

 private:
  channel::Channel& channel_;
};

}  // namespace

Engine::Engine(channel::Channel& channel, Negotiator& negotiator, submit::HandleTable& handles,
               OpenLanes& open_lanes, Options options)
    : channel_(channel),
      negotiator_(negotiator),
      handles_(handles),
      open_lanes_(open_lanes),
      options_(std::move(options)),
      one_thread_(!channel.any_thread() || options_.one_thread) {}

void Engine::start() {
  std::call_once(started_, [this] {
    coordination_ = std::thread([this] { coordinate(); });
    MutexLock lock(lane_threads_mutex_);
    running_ = true;
    for (const auto& lane_thread : *lane_threads_) begin(lane_thread);
  });
}

void Engine::stop() {
  stopping_.store(true, std::memory_order_release);
  channel_.wake();
  if (coordination_.joinable()) coordination_.join();
  const auto all = lane_threads();
  for (const auto& lane_thread : *all) {
    lane_thread->lane->wake();
    if (lane_thread->thread.joinable()) lane_thread->thread.join();
  }
}

void Engine::begin(const std::shared_ptr<LaneThread>& lane_thread) {
  if (one_thread_) return;
  lane_thread->thread = std::thread([this, &self = *lane_thread] { run_lane(self); });
}

void Engine::add_lane(std::shared_ptr<Lane> lane) {
  auto lane_thread = std::make_shared<LaneThread>();
  lane_thread->lane = std::move(lane);
  MutexLock lock(lane_threads_mutex_);
  auto more = std::make_shared<LaneThreads>(*lane_threads_);
  more->push_back(lane_thread);
  lane_threads_ = std::move(more);
  if (running_) begin(lane_thread);
}

void Engine::remove_lane(const Lane& lane) {
  std::shared_ptr<LaneThread> lane_thread;
  {
    MutexLock lock(lane_threads_mutex_);
    auto fewer = std::make_shared<LaneThreads>(*lane_threads_);
    const auto found =
        std::find_if(fewer->begin(), fewer->end(), [&](const auto& one) { return one->lane.get() == &lane; });
    if (found == fewer->end()) return;
    lane_thread = *found;
    fewer->erase(found);
    lane_threads_ = std::move(fewer);
  }
  lane_thread->leaving.store(true, std::memory_order_release);
  lane_thread->lane->wake();
  if (lane_thread->thread.joinable()) lane_thread->thread.join();
}

std::shared_ptr<const Engine::LaneThreads> Engine::lane_threads() const {
  MutexLock lock(lane_threads_mutex_);
  return lane_threads_;
}

void Engine::wake_lanes(const Lane* but_for) {
  const auto all = lane_threads();
  for (const auto& lane_thread : *all) {
    if (lane_thread->lane.get() != but_for && lane_thread->lane->has_work()) lane_thread->lane->wake();
  }
}

bool Engine::lanes_watch_devices() const {
  const auto all = lane_threads();
  return std::any_of(all->begin(), all->end(),
                     [](const auto& lane_thread) { return lane_thread->lane->watches_device(); });
}

bool Engine::lanes_have_work() const {
  const auto all = lane_threads();
  return std::any_of(all->begin(), all->end(),
                     [](const auto& lane_thread) { return lane_thread->lane->has_work(); });
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
  collective::Backoff backoff(true);
  while (!stopping_.load(std::memory_order_acquire)) {
    bool moved = false;
    Deadline due = Deadline::never();
    {
      BackgroundHold hold(negotiation_);
      attention_.store(false, std::memory_order_release);
      moved = negotiator_.step(steady_now());
      due = negotiator_.next_due().sooner(options_.housekeeping(steady_now()));
      background_due_ = moved ? TimePoint::min() : due.when();
    }
    // The step's receive() may have taken a wake-up that was meant for stop() or wake_background().
    if (stopping_.load(std::memory_order_acquire)) break;
    moved = attention_.load(std::memory_order_acquire) || moved;
    if (moved && !one_thread_) wake_lanes();
    const bool busy = one_thread_ && lanes_have_work();
    const bool watches = one_thread_ && lanes_watch_devices();
    if (busy || watches) moved = step_lanes() || moved;
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
  BackgroundHold hold(negotiation_);
  static_cast<void>(negotiator_.step(steady_now()));
}

bool Engine::step(Lane& lane) {
  const bool busy = lane.has_work() || lane.watches_device();
  const bool moved = lane.step();
  if ((busy || moved) && !lane.has_work()) open_lanes_.note_idle();
  return moved;
}

void Engine::fail_remaining_work(Lane& lane) {
  BackgroundHold hold(lane.token());
  while (lane.has_work() && step(lane)) {
  }
}

void Engine::run_where_fabrics_live(const std::function<void()>& task) {
  if (one_thread_) {
    negotiate(task);
  } else {
    task();
  }
}

bool Engine::step_lanes() {
  bool moved = false;
  const auto all = lane_threads();
  for (const auto& lane_thread : *all) {
    BackgroundHold hold(lane_thread->lane->token());
    moved = step(*lane_thread->lane) || moved;
  }
  return moved;
}

void Engine::run_lane(LaneThread& lane_thread) {
  Lane& lane = *lane_thread.lane;
  // The thread never spins, because backward runs on these cores. A caller that waits drives the lane itself,
  // and may spin.
  collective::Backoff backoff(true);
  while (!stopping_.load(std::memory_order_acquire) && !lane_thread.leaving.load(std::memory_order_acquire)) {
    if (!lane.has_work() && !lane.may_enter()) {
      backoff.reset();
      lane.wait_for_work(lane.watches_device() ? Deadline::after(kDeviceWatch) : Deadline::never());
      if (!lane.watches_device()) continue;
    }
    collective::Nap nap;
    {
      BackgroundHold hold(lane.token());
      if (step(lane)) {
        backoff.reset();
      } else {
        nap = lane.idle(backoff);
      }
    }
    nap.take();
  }
}

bool Engine::wait(submit::Handle handle, LaneId id, Deadline deadline) {
  const auto all = lane_threads();
  const auto lane_thread =
      std::find_if(all->begin(), all->end(), [id](const auto& s) { return s->lane->id() == id; });
  const Minding minding(lane_thread == all->end() ? nullptr : (*lane_thread)->lane.get());
  if (done(handle)) return true;
  bool driving = !one_thread_ && lane_thread != all->end();
  while (driving && !done(handle) && !deadline.passed()) {
    Lane& lane = *(*lane_thread)->lane;
    driving = drive_lane(lane, handle, deadline) || drive_negotiation(lane, handle, deadline);
  }
  wake_lanes();  // the lanes' threads take over what this caller has not done
  if (driving && done(handle)) return true;
  // The deadline has passed, or another caller drives, or no caller may. When that caller leaves, the
  // background threads take over.
  wake();
  return handles_.sleep_until_done(handle, deadline);
}

// Drives the lane of the handle. The threads of other lanes run at the same time.
bool Engine::drive_lane(Lane& lane, submit::Handle handle, Deadline deadline) {
  if (!lane.has_work() && !lane.goes_by_schedule()) return false;
  DriverHold hold(lane.token());
  if (!hold) return false;
  // This may take long. Meanwhile the background reports what was submitted, and sees the flush.
  if (lane.take_news()) wake();
  collective::Backoff backoff(options_.crowded);
  while ((lane.has_work() || lane.goes_by_schedule()) && !done(handle) && !deadline.passed()) {
    if (step(lane)) {
      backoff.reset();
    } else {
      lane.idle(backoff).take();
    }
  }
  return true;
}

bool Engine::drive_negotiation(Lane& lane, submit::Handle handle, Deadline deadline) {
  // Another caller drives the lane. The background negotiates meanwhile.
  if (lane.has_work() || lane.goes_by_schedule()) return false;
  DriverHold hold(negotiation_);
  if (!hold) return false;
  const Attending polling(channel_);
  // has_work() is asked before done(): as soon as it is false, the handles of the work are done, and done()
  // sees that.
  const auto negotiates = [&] {
    return !lane.has_work() && !lane.goes_by_schedule() && !done(handle) && !deadline.passed();
  };
  while (negotiates()) {
    static_cast<void>(lane.take_news());  // before the step, which acts upon the news
    if (negotiator_.step(steady_now())) {
      wake_lanes(&lane);        // they may have new orders
    } else if (negotiates()) {  // again: the step may have taken the wake-up that came with new work of the
                                // lane
      channel_.wait_polling(deadline.sooner(negotiator_.next_due()),
                            options_.crowded ? Duration{0} : collective::Backoff::kSpin);
    }
  }
  // The coordination thread must look now if this thread has taken a wake-up that was meant for it, or if
  // something is now due earlier than it knows.
  const bool meant_for_it =
      stopping_.load(std::memory_order_acquire) || attention_.load(std::memory_order_acquire);
  if (meant_for_it || negotiator_.next_due().when() < background_due_) channel_.wake();
  return true;
}

}  // namespace roundelay::runtime
