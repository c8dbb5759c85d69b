// The lanes of one process, each with a background thread that steps it.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/annotations.h"
#include "execute/lane.h"
#include "runtime/session/open_lanes.h"

namespace roundelay::runtime {

// Any thread may call the functions, except where a comment says otherwise.
class LaneThreads {
 public:
  // `open_lanes` outlives this object. `one_thread`: lanes get no threads; the coordination thread calls
  // step_all().
  LaneThreads(OpenLanes& open_lanes, bool one_thread) : open_lanes_(open_lanes), one_thread_(one_thread) {}
  ~LaneThreads() { stop(); }
  LaneThreads(const LaneThreads&) = delete;
  LaneThreads& operator=(const LaneThreads&) = delete;

  // Starts a thread for each lane, also for those that are added later. With `one_thread` starts none. Call
  // it once.
  void start() EXCLUDES(mutex_);
  // Joins all threads. Operations in flight stay as they are. Later calls do nothing.
  void stop() EXCLUDES(mutex_);
  // Adds a lane whose id is new.
  void add(std::shared_ptr<execute::Lane> lane) EXCLUDES(mutex_);
  // Joins the lane's thread. Does nothing if the lane was not added. The lane must get no more work.
  void remove(const execute::Lane& lane) EXCLUDES(mutex_);

  // Returns null if no such lane was added.
  [[nodiscard]] std::shared_ptr<execute::Lane> find(LaneId id) const EXCLUDES(mutex_);
  // Wakes the threads of lanes with work, except that of `but_for`. Call it when there is more work, or when
  // all of it is to fail.
  void wake(const execute::Lane* but_for = nullptr) const EXCLUDES(mutex_);
  // Return whether some lane has work, or watches a device (Lane::has_work(), Lane::watches_device()).
  [[nodiscard]] bool have_work() const EXCLUDES(mutex_);
  [[nodiscard]] bool watch_devices() const EXCLUDES(mutex_);
  [[nodiscard]] bool one_thread() const { return one_thread_; }

  // Steps the lane once. The caller holds its token. Returns false if nothing moved.
  bool step(execute::Lane& lane) const;
  // Steps each lane once. Returns false if nothing moved.
  bool step_all() const EXCLUDES(mutex_);
  // Steps a lane whose remaining work is to fail, until it has none or nothing moves. Call it when the lane's
  // thread is joined, or the AbortToken is raised.
  void fail_remaining_work(execute::Lane& lane) const;

 private:
  // A lane and its thread.
  struct LaneThread {
    std::shared_ptr<execute::Lane> lane;
    std::atomic<bool> leaving{false};
    std::thread thread;
  };
  using List = std::vector<std::shared_ptr<LaneThread>>;

  // The body of a lane's thread.
  void run(const LaneThread& lane_thread) const;
  void begin(LaneThread& lane_thread);
  static void end(LaneThread& lane_thread);
  [[nodiscard]] std::shared_ptr<const List> list() const EXCLUDES(mutex_);

  OpenLanes& open_lanes_;
  const bool one_thread_;
  mutable Mutex mutex_;
  bool running_ GUARDED_BY(mutex_) = false;
  // Copied on change, so that readers hold the lock only to take the pointer.
  std::shared_ptr<const List> list_ GUARDED_BY(mutex_) = std::make_shared<List>();
};

// While a lane watches a device, its thread looks this often.
inline constexpr Duration kDeviceWatch = std::chrono::milliseconds(100);

}  // namespace roundelay::runtime
