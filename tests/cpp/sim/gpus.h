// What the lanes of all simulated ranks share: operations of the CPU, for which all who take part must come,
// and a GPU a rank that runs what was enqueued there one after the other, as soon as all have it foremost.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "base/group.h"

namespace roundelay::sim {

// The same on all members.
struct OperationId {
  LaneId lane;
  std::size_t index = 0;  // in its lane
  friend auto operator<=>(const OperationId&, const OperationId&) = default;
};

class Gpus {
 public:
  explicit Gpus(int ranks) : queues_(static_cast<std::size_t>(ranks)) {}

  // True once all are there.
  bool meet(const OperationId& operation, int rank, std::size_t participants) {
    auto& there = met_[operation];
    there.insert(rank);
    return there.size() == participants;
  }
  void enqueue(const OperationId& operation, int rank, std::size_t participants) {
    queues_[static_cast<std::size_t>(rank)].push_back({operation, participants});
  }

  // One operation, if any can run.
  bool run() {
    std::map<OperationId, std::size_t> foremost;
    for (const auto& queue : queues_) {
      if (queue.empty()) continue;
      const auto& [operation, participants] = queue.front();
      if (++foremost[operation] < participants) continue;
      const OperationId done = operation;
      for (auto& other : queues_) {
        if (!other.empty() && other.front().operation == done) other.pop_front();
      }
      ++ran;
      return true;
    }
    return false;
  }
  [[nodiscard]] bool idle() const {
    for (const auto& queue : queues_) {
      if (!queue.empty()) return false;
    }
    return true;
  }

  int ran = 0;

 private:
  struct Enqueued {
    OperationId operation;
    std::size_t participants;
  };
  std::map<OperationId, std::set<int>> met_;
  std::vector<std::deque<Enqueued>> queues_;  // by rank
};

}  // namespace roundelay::sim
