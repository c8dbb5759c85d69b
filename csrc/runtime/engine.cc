#include "runtime/engine.h"

#include <algorithm>
#include <utility>

#include "collective/backoff.h"

namespace roundelay::runtime {

Engine::Engine(channel::Channel& channel, Negotiator& negotiator, std::vector<Lane*> lanes,
               submit::HandleTable& handles, Options options)
    : channel_(channel),
      negotiator_(negotiator),
      lanes_(std::move(lanes)),
      handles_(handles),
      options_(std::move(options)),
      one_thread_(!channel.any_thread() ||
                  std::any_of(lanes_.begin(), lanes_.end(), [](Lane* l) { return !l->caller_may_drive(); })) {
}

void Engine::start() {
  std::call_once(started_, [this] {
    threads_.emplace_back([this] { coordinate(); });
    if (one_thread_) return;
    for (Lane* lane : lanes_) threads_.emplace_back([this, lane] { run_lane(*lane); });
  });
}

void Engine::stop() {
  stopping_.store(true, std::memory_order_release);
  channel_.wake();
  for (Lane* lane : lanes_) lane->rouse();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Engine::rouse_lanes() {
  for (Lane* lane : lanes_) {
    if (lane->has_work()) lane->rouse();
  }
}

bool Engine::lanes_have_work() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [](Lane* lane) { return lane->has_work(); });
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
    // The step may have taken a wake-up that was meant for this.
    if (stopping_.load(std::memory_order_acquire)) return;
    moved = attention_.load(std::memory_order_acquire) || moved;
    if (moved && !one_thread_) rouse_lanes();
    const bool busy = one_thread_ && lanes_have_work();
    if (busy) moved = step_lanes() || moved;
    if (moved) {
      backoff.reset();
    } else if (busy) {
      channel_.wait(due.sooner(Deadline::after(std::max(backoff.next(), Duration{1}))));
    } else {
      channel_.wait(due);
    }
  }
}

bool Engine::step_lanes() {
  bool moved = false;
  for (Lane* lane : lanes_) {
    BackgroundHold hold(lane->token());
    moved = lane->step() || moved;
  }
  return moved;
}

void Engine::run_lane(Lane& lane) {
  // Never hot: backward runs on these cores. A caller that waits drives the lane itself, and may spin.
  collective::Backoff backoff(true);
  while (!stopping_.load(std::memory_order_acquire)) {
    if (!lane.has_work()) {
      backoff.reset();
      lane.wait_for_work(Deadline::never());
      continue;
    }
    bool moved = false;
    {
      BackgroundHold hold(lane.token());
      moved = lane.step();
    }
    if (moved) {
      backoff.reset();
    } else {
      backoff.pause();
    }
  }
}

bool Engine::wait(submit::Handle handle, Deadline deadline) {
  if (done(handle)) return true;
  bool driving = !one_thread_;
  while (driving && !done(handle) && !deadline.passed()) {
    driving = drive_lanes(handle, deadline) || drive_negotiation(handle, deadline);
  }
  rouse_lanes();  // what this caller leaves behind is theirs
  if (driving) return done(handle);
  // Another caller drives, or nobody may. Should that caller leave, the background threads take over.
  wake();
  return handles_.sleep_until_done(handle, deadline);
}

bool Engine::drive_lanes(submit::Handle handle, Deadline deadline) {
  for (Lane* lane : lanes_) {
    if (!lane->has_work()) continue;
    DriverHold hold(lane->token());
    if (!hold) continue;
    collective::Backoff backoff(options_.crowded);
    while (lane->has_work() && !done(handle) && !deadline.passed()) {
      if (lane->step()) {
        backoff.reset();
      } else {
        backoff.pause();
      }
    }
    return true;
  }
  return false;
}

bool Engine::drive_negotiation(submit::Handle handle, Deadline deadline) {
  if (lanes_have_work())
    return false;  // another caller runs them; to negotiate meanwhile is the background's part
  DriverHold hold(negotiation_);
  if (!hold) return false;
  while (!done(handle) && !lanes_have_work() && !deadline.passed()) {
    if (negotiator_.step(steady_now())) continue;
    channel_.wait(deadline.sooner(negotiator_.next_due()));
  }
  // What this thread set going may be due before the coordination thread meant to look again, and this thread
  // may have taken a wake-up that was meant for that one.
  const bool meant_for_it =
      stopping_.load(std::memory_order_acquire) || attention_.load(std::memory_order_acquire);
  if (meant_for_it || negotiator_.next_due().when() < background_due_) channel_.wake();
  return true;
}

}  // namespace roundelay::runtime
