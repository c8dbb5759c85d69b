// The process sets of one init, by the ids that users see, and this rank's lane of each set it is a member
// of.
//
// A set's id is its serial number, which is never used again: who still has the id of a removed set, as an
// optimizer may, gets an error and no other set. All ranks make and remove sets in the same order, so that
// the numbers are the same on all ranks.
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
#include "complete/handles.h"
#include "execute/lane.h"

namespace roundelay::runtime {

struct ProcessSet {
  ProcessSetId serial = 0;              // LaneId::process_set of its lane
  std::vector<int> ranks;               // world ranks, ascending
  std::shared_ptr<execute::Lane> lane;  // null if this rank is not a member
  bool removing = false;                // begin_removal() was called
};

// Returns why there can be no set with these ranks; empty if there can. Several sets may have the same ranks,
// each with lanes of its own. `size`: ranks in the world.
[[nodiscard]] std::string refuse_ranks(const std::vector<int>& ranks, int size);

// Thread-safe.
class ProcessSets {
 public:
  // `rank`: this rank in the world.
  explicit ProcessSets(int rank) : rank_(rank) {}

  // Returns the serial number of the next set. All ranks call it for each attempt to make a set, also for one
  // that fails.
  ProcessSetId next_serial() EXCLUDES(mutex_);
  // Lets lane_of() find the lane. lane_for_use() finds it after publish().
  void add_lane(std::shared_ptr<execute::Lane> lane) EXCLUDES(mutex_);
  // Removes the lane and forgets its handles. The lane must have no work, and get none.
  void remove_lane(LaneId id) EXCLUDES(mutex_);
  // Lets users use the set; returns its id.
  ProcessSetId publish(ProcessSet set) EXCLUDES(mutex_);
  // Forgets the set.
  void erase(ProcessSetId id) EXCLUDES(mutex_);

  // Returns the lane in which users submit. Errors: kInvalidArgument (the set is unknown or being removed, or
  // this rank is not a member).
  [[nodiscard]] Result<std::shared_ptr<execute::Lane>> lane_for_use(ProcessSetId id) const EXCLUDES(mutex_);
  // Returns a copy of the set. Errors: kInvalidArgument (the set is unknown).
  [[nodiscard]] Result<ProcessSet> find(ProcessSetId id) const EXCLUDES(mutex_);
  // Makes lane_for_use() refuse the set. Errors: kInvalidArgument (the set is unknown or being removed).
  Result<ProcessSet> begin_removal(ProcessSetId id) EXCLUDES(mutex_);
  // Returns null if this rank has no such lane.
  [[nodiscard]] std::shared_ptr<execute::Lane> lane_of(LaneId id) const EXCLUDES(mutex_);
  // Returns all lanes of this rank.
  [[nodiscard]] std::vector<std::shared_ptr<execute::Lane>> lanes() const EXCLUDES(mutex_);
  // Adds the counters of all lanes to `sum`, those of removed lanes too.
  void add_counters(execute::LaneCounters& sum) const EXCLUDES(mutex_);

  // Keeps the lane of a handle until forget() or remove_lane(). Handles of the world need no entry:
  // lane_of_handle() returns the world's lane for those that it does not know.
  void remember(complete::Handle handle, LaneId lane) EXCLUDES(mutex_);
  [[nodiscard]] LaneId lane_of_handle(complete::Handle handle) const EXCLUDES(mutex_);
  void forget(complete::Handle handle) EXCLUDES(mutex_);

 private:
  [[nodiscard]] Result<ProcessSet> find_locked(ProcessSetId id) const REQUIRES(mutex_);

  const int rank_;
  mutable Mutex mutex_;
  ProcessSetId last_serial_ GUARDED_BY(mutex_) = 0;
  std::map<ProcessSetId, ProcessSet> sets_ GUARDED_BY(mutex_);
  std::map<LaneId, std::shared_ptr<execute::Lane>> lanes_ GUARDED_BY(mutex_);
  execute::LaneCounters retired_ GUARDED_BY(mutex_);  // sums over the removed lanes
  std::unordered_map<complete::Handle, LaneId> handles_ GUARDED_BY(mutex_);
  std::atomic<bool> any_handles_{false};  // false: waiters in the world need no lock
};

// Returns "the process set with ranks [0, 1, 3]".
std::string describe(const ProcessSet& set);

}  // namespace roundelay::runtime
