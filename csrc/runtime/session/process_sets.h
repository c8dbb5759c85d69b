// The process sets of one init: ids for users, and this rank's lane in each set that it is in.
//
// A user's id is the lowest that is free, so that ids come back; a lane's process set is a serial number that
// does not. All ranks add and remove sets in one order, so both are the same everywhere.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/annotations.h"
#include "base/group.h"
#include "base/status.h"
#include "runtime/lane/lane.h"
#include "submit/handles.h"

namespace roundelay::runtime {

struct ProcessSet {
  ProcessSetId serial = 0;
  std::vector<int> ranks;      // world ranks, ascending
  std::shared_ptr<Lane> lane;  // null: this rank is not among them
  bool removing = false;
};

// Thread-safe.
class ProcessSets {
 public:
  explicit ProcessSets(int rank) : rank_(rank) {}

  // A number for the next set, also for one that will fail to be made.
  ProcessSetId next_serial() EXCLUDES(mutex_);
  // The lane is found by its id from here, by users after publish().
  void add_lane(std::shared_ptr<Lane> lane) EXCLUDES(mutex_);
  void remove_lane(LaneId id) EXCLUDES(mutex_);  // it has no work and gets none
  ProcessSetId publish(ProcessSet set) EXCLUDES(mutex_);
  void erase(ProcessSetId id) EXCLUDES(mutex_);

  // kInvalidArgument: unknown, being removed, or without this rank.
  [[nodiscard]] Result<std::shared_ptr<Lane>> lane_for_use(ProcessSetId id) const EXCLUDES(mutex_);
  [[nodiscard]] Result<ProcessSet> find(ProcessSetId id) const EXCLUDES(mutex_);
  // From here lane_for_use() refuses the set. kInvalidArgument as find(), or another call removes it.
  Result<ProcessSet> begin_removal(ProcessSetId id) EXCLUDES(mutex_);
  // Null: no such lane here.
  [[nodiscard]] std::shared_ptr<Lane> lane_of(LaneId id) const EXCLUDES(mutex_);
  [[nodiscard]] std::vector<std::shared_ptr<Lane>> lanes() const EXCLUDES(mutex_);
  // Adds up what all lanes have done, those that are gone too.
  void add_counters(LaneCounters& sum) const EXCLUDES(mutex_);
  // Why a set with these ranks cannot be added; empty if nothing speaks against it. `size`: of the world.
  [[nodiscard]] std::string refuse(const std::vector<int>& ranks, int size) const EXCLUDES(mutex_);

  // Which lane a handle belongs to, of those outside the world; forgotten when it is taken or its lane goes.
  void remember(submit::Handle handle, LaneId lane) EXCLUDES(mutex_);
  [[nodiscard]] LaneId lane_of_handle(submit::Handle handle) const EXCLUDES(mutex_);
  void forget(submit::Handle handle) EXCLUDES(mutex_);

 private:
  [[nodiscard]] Result<ProcessSet> find_locked(ProcessSetId id) const REQUIRES(mutex_);

  const int rank_;
  mutable Mutex mutex_;
  ProcessSetId last_serial_ GUARDED_BY(mutex_) = 0;
  std::map<ProcessSetId, ProcessSet> sets_ GUARDED_BY(mutex_);
  std::map<LaneId, std::shared_ptr<Lane>> lanes_ GUARDED_BY(mutex_);
  LaneCounters retired_ GUARDED_BY(mutex_);  // of lanes that are gone
  std::unordered_map<submit::Handle, LaneId> handles_ GUARDED_BY(mutex_);
  std::atomic<bool> any_handles_{false};  // spares the world's waiters the lock
};

// "the process set with ranks [0, 1, 3]"
std::string describe(const ProcessSet& set);

}  // namespace roundelay::runtime
