// The hardware that the lanes of all simulated ranks share. An operation on the CPU runs when all
// participants have come. Each rank has one GPU, which runs its operations in the order in which they were
// enqueued: one runs when it is the foremost on the GPUs of all participants.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "base/group.h"

namespace roundelay::sim {

// The id of an operation is the same on all members.
struct OperationId {
  LaneId lane;
  std::size_t index = 0;  // in its lane
  friend auto operator<=>(const OperationId&, const OperationId&) = default;
};

class Gpus {
 public:
  explicit Gpus(int ranks) : queues_(static_cast<std::size_t>(ranks)) {}

  // Returns true when all participants have come.
  bool meet(const OperationId& operation, int rank, std::size_t participants) {
    auto& there = met_[operation];
    there.insert(rank);
    return there.size() == participants;
  }
  void enqueue(const OperationId& operation, int rank, std::size_t participants) {
    auto& queue = queues_[static_cast<std::size_t>(rank)];
    queue.push_back({operation, participants});
    if (queue.size() == 1) is_foremost(queue.front());
  }

  // Runs one operation, if any can run. Returns false if none can.
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
  std::map<OperationId, std::size_t> foremost_;  // on how many GPUs the operation is the foremost
  std::deque<OperationId> runnable_;
};

}  // namespace roundelay::sim
