#include "runtime/session/process_sets.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace roundelay::runtime {

namespace {

// "[0, 1, 3]"
std::string text_of(const std::vector<int>& ranks) {
  std::string text = "[";
  for (const int rank : ranks) text += (text.size() > 1 ? ", " : "") + std::to_string(rank);
  return text + "]";
}

}  // namespace

std::string describe(const ProcessSet& set) { return "the process set with ranks " + text_of(set.ranks); }

ProcessSetId ProcessSets::next_serial() {
  MutexLock lock(mutex_);
  return ++last_serial_;
}

void ProcessSets::add_lane(std::shared_ptr<execute::Lane> lane) {
  MutexLock lock(mutex_);
  lanes_.emplace(lane->id(), std::move(lane));
}

void ProcessSets::remove_lane(LaneId id) {
  MutexLock lock(mutex_);
  if (const auto found = lanes_.find(id); found != lanes_.end()) {
    found->second->add_counters(retired_);
    lanes_.erase(found);
  }
  std::erase_if(handles_, [id](const auto& entry) { return entry.second == id; });
  any_handles_.store(!handles_.empty(), std::memory_order_release);
}

ProcessSetId ProcessSets::publish(ProcessSet set) {
  MutexLock lock(mutex_);
  const ProcessSetId id = set.serial;
  sets_.emplace(id, std::move(set));
  return id;
}

void ProcessSets::erase(ProcessSetId id) {
  MutexLock lock(mutex_);
  sets_.erase(id);
}

Result<ProcessSet> ProcessSets::find_locked(ProcessSetId id) const {
  const auto found = sets_.find(id);
  if (found == sets_.end()) {
    return Status::invalid("process set " + std::to_string(id) + " does not exist or was removed");
  }
  return found->second;
}

Result<ProcessSet> ProcessSets::find(ProcessSetId id) const {
  MutexLock lock(mutex_);
  return find_locked(id);
}

Result<std::shared_ptr<execute::Lane>> ProcessSets::lane_for_use(ProcessSetId id) const {
  MutexLock lock(mutex_);
  const auto found = sets_.find(id);
  if (found == sets_.end()) return find_locked(id).status();
  const ProcessSet& set = found->second;
  if (set.removing) return Status::invalid("process set " + std::to_string(id) + " is being removed");
  if (set.lane == nullptr) {
    return Status::invalid("rank " + std::to_string(rank_) + " is not in process set " + std::to_string(id) +
                           ", which has ranks " + text_of(set.ranks));
  }
  return set.lane;
}

Result<ProcessSet> ProcessSets::begin_removal(ProcessSetId id) {
  MutexLock lock(mutex_);
  Result<ProcessSet> set = find_locked(id);
  if (!set.ok()) return set;
  if (set->removing) return Status::invalid("process set " + std::to_string(id) + " is being removed");
  sets_.at(id).removing = true;
  return set;
}

std::shared_ptr<execute::Lane> ProcessSets::lane_of(LaneId id) const {
  MutexLock lock(mutex_);
  const auto found = lanes_.find(id);
  return found == lanes_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<execute::Lane>> ProcessSets::lanes() const {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<execute::Lane>> all;
  for (const auto& [id, lane] : lanes_) all.push_back(lane);
  return all;
}

void ProcessSets::add_counters(execute::LaneCounters& sum) const {
  MutexLock lock(mutex_);
  sum.add(retired_);
  for (const auto& [id, lane] : lanes_) lane->add_counters(sum);
}

std::string refuse_ranks(const std::vector<int>& ranks, int size) {
  if (ranks.empty()) return "a process set needs at least one rank";
  for (const int rank : ranks) {
    if (rank >= 0 && rank < size) continue;
    return "rank " + std::to_string(rank) + " does not exist; there are " + std::to_string(size) + " ranks";
  }
  if (std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) != ranks.end()) {
    return "the ranks " + text_of(ranks) + " must be ascending, each of them once";
  }
  return {};
}

void ProcessSets::remember(complete::Handle handle, LaneId lane) {
  MutexLock lock(mutex_);
  handles_.emplace(handle, lane);
  any_handles_.store(true, std::memory_order_release);
}

LaneId ProcessSets::lane_of_handle(complete::Handle handle) const {
  if (!any_handles_.load(std::memory_order_acquire)) return {};
  MutexLock lock(mutex_);
  const auto found = handles_.find(handle);
  return found == handles_.end() ? LaneId{} : found->second;
}

void ProcessSets::forget(complete::Handle handle) {
  if (!any_handles_.load(std::memory_order_acquire)) return;
  MutexLock lock(mutex_);
  handles_.erase(handle);
  any_handles_.store(!handles_.empty(), std::memory_order_release);
}

}  // namespace roundelay::runtime
