// The data plane of all simulated ranks. An operation of the CPU completes when all participants have come.
// Each rank has a GPU with a queue; an operation there runs when it is foremost on the GPUs of all
// participants.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "base/group.h"

namespace roundelay::sim {

// The same on all members of a lane.
struct OperationId {
  LaneId lane;
  std::size_t index = 0;  // in its lane
  friend auto operator<=>(const OperationId&, const OperationId&) = default;
};

class Gpus {
 public:
  explicit Gpus(int ranks) : queues_(static_cast<std::size_t>(ranks)) {}

  // `rank` comes to an operation of the CPU. True once all participants are there.
  bool meet(const OperationId& operation, int rank, std::size_t participants) {
    auto& there = met_[operation];
    there.insert(rank);
    return there.size() == participants;
  }
  // `rank` enqueues an operation on its GPU.
  void enqueue(const OperationId& operation, int rank, std::size_t participants) {
    auto& queue = queues_[static_cast<std::size_t>(rank)];
    queue.push_back({operation, participants});
    if (queue.size() == 1) is_foremost(queue.front());
  }

  // Runs one operation. False if none can run.
  bool run() {
    if (runnable_.empty()) return false;
    const OperationId done = runnable_.front();
    runnable_.pop_front();
    for (auto& queue : queues_) {
      if (queue.empty() || queue.front().operation != done) continue;
      queue.pop_front();
      if (!queue.empty()) is_foremost(queue.front());
    }
    return true;
  }
  [[nodiscard]] bool any_runnable() const { return !runnable_.empty(); }
  // True if all queues are empty.
  [[nodiscard]] bool idle() const {
    for (const auto& queue : queues_) {
      if (!queue.empty()) return false;
    }
    return true;
  }

 private:
  struct Enqueued {
    OperationId operation;
    std::size_t participants;
  };

  void is_foremost(const Enqueued& enqueued) {
    if (++foremost_[enqueued.operation] == enqueued.participants) runnable_.push_back(enqueued.operation);
  }

  std::map<OperationId, std::set<int>> met_;
  std::vector<std::deque<Enqueued>> queues_;     // by rank
  std::map<OperationId, std::size_t> foremost_;  // on how many GPUs the operation is foremost
  std::deque<OperationId> runnable_;
};

}  // namespace roundelay::sim
