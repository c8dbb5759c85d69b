#include "runtime/session/lane_threads.h"

#include <algorithm>
#include <utility>

#include "base/backoff.h"
#include "execute/progress_token.h"

namespace roundelay::runtime {

void LaneThreads::start() {
  MutexLock lock(mutex_);
  running_ = true;
  for (const auto& lane_thread : *list_) begin(*lane_thread);
}

void LaneThreads::stop() {
  {
    MutexLock lock(mutex_);
    running_ = false;
  }
  const auto all = list();
  for (const auto& lane_thread : *all) lane_thread->leaving.store(true, std::memory_order_release);
  for (const auto& lane_thread : *all) end(*lane_thread);
}

void LaneThreads::add(std::shared_ptr<execute::Lane> lane) {
  auto lane_thread = std::make_shared<LaneThread>();
  lane_thread->lane = std::move(lane);
  MutexLock lock(mutex_);
  auto more = std::make_shared<List>(*list_);
  more->push_back(lane_thread);
  list_ = std::move(more);
  if (running_) begin(*lane_thread);
}

void LaneThreads::remove(const execute::Lane& lane) {
  std::shared_ptr<LaneThread> lane_thread;
  {
    MutexLock lock(mutex_);
    auto fewer = std::make_shared<List>(*list_);
    const auto found =
        std::find_if(fewer->begin(), fewer->end(), [&](const auto& one) { return one->lane.get() == &lane; });
    if (found == fewer->end()) return;
    lane_thread = *found;
    fewer->erase(found);
    list_ = std::move(fewer);
  }
  end(*lane_thread);
}

void LaneThreads::begin(LaneThread& lane_thread) {
  if (one_thread_) return;
  lane_thread.thread = std::thread([this, &lane_thread] { run(lane_thread); });
}

void LaneThreads::end(LaneThread& lane_thread) {
  lane_thread.leaving.store(true, std::memory_order_release);
  lane_thread.lane->wake();
  if (lane_thread.thread.joinable()) lane_thread.thread.join();
}

std::shared_ptr<const LaneThreads::List> LaneThreads::list() const {
  MutexLock lock(mutex_);
  return list_;
}

std::shared_ptr<execute::Lane> LaneThreads::find(LaneId id) const {
  const auto all = list();
  const auto lane_thread =
      std::find_if(all->begin(), all->end(), [id](const auto& one) { return one->lane->id() == id; });
  return lane_thread == all->end() ? nullptr : (*lane_thread)->lane;
}

void LaneThreads::wake(const execute::Lane* but_for) const {
  const auto all = list();
  for (const auto& lane_thread : *all) {
    if (lane_thread->lane.get() != but_for && lane_thread->lane->has_work()) lane_thread->lane->wake();
  }
}

bool LaneThreads::have_work() const {
  const auto all = list();
  return std::any_of(all->begin(), all->end(),
                     [](const auto& lane_thread) { return lane_thread->lane->has_work(); });
}

bool LaneThreads::watch_devices() const {
  const auto all = list();
  return std::any_of(all->begin(), all->end(),
                     [](const auto& lane_thread) { return lane_thread->lane->watches_device(); });
}

bool LaneThreads::step(execute::Lane& lane) const {
  const bool busy = lane.has_work() || lane.watches_device();
  const bool moved = lane.step();
  if ((busy || moved) && !lane.has_work()) open_lanes_.note_idle();
  return moved;
}

bool LaneThreads::step_all() const {
  bool moved = false;
  const auto all = list();
  for (const auto& lane_thread : *all) {
    execute::BackgroundHold hold(lane_thread->lane->token());
    moved = step(*lane_thread->lane) || moved;
  }
  return moved;
}

void LaneThreads::fail_remaining_work(execute::Lane& lane) const {
  execute::BackgroundHold hold(lane.token());
  while (lane.has_work() && step(lane)) {
  }
}

void LaneThreads::run(const LaneThread& lane_thread) const {
  execute::Lane& lane = *lane_thread.lane;
  // The thread never spins, because backward runs on these cores. A caller that waits drives the lane itself,
  // and may spin.
  Backoff backoff(true);
  while (!lane_thread.leaving.load(std::memory_order_acquire)) {
    if (!lane.needs_thread()) {
      backoff.reset();
      lane.wait_for_work(lane.watches_device() ? Deadline::after(kDeviceWatch) : Deadline::never());
      if (!lane.watches_device()) continue;
    }
    Nap nap;
    {
      execute::BackgroundTry hold(lane.token());
      if (hold && step(lane)) {
        backoff.reset();
      } else if (hold) {
        nap = lane.idle(backoff);
      }
    }
    nap.wait();
  }
}

}  // namespace roundelay::runtime
