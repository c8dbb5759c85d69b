// Which ranks carry out a stage together, and over which ends of links.
#pragma once

#include <cstddef>
#include <vector>

#include "model/stage.h"

namespace roundelay::model {

// A symmetric job has one rank, which stands for all of them: each of its transfers stands for those of all
// ranks that share the end.
class Groups {
 public:
  Groups(const Cluster& cluster, bool symmetric);

  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] int count(const Stage& stage) const;
  // Returns the rank's group; -1: it takes no part.
  [[nodiscard]] int of(const Stage& stage, int rank) const;
  [[nodiscard]] std::vector<int> members(const Stage& stage, int group) const;

  struct Share {
    int end = 0;        // a number below ends().size()
    double weight = 1;  // transfers that leave there at once
  };
  // Returns the ends over which the group's ranks send.
  [[nodiscard]] std::vector<Share> shares(const Stage& stage, int group) const;
  // Returns the bandwidth of each end: those of the levels, then the ranks' memories and copy engines.
  [[nodiscard]] const std::vector<double>& ends() const { return ends_; }
  // Returns the first end of a level; of level levels.size(): the end after the last level's.
  [[nodiscard]] int first_end(std::size_t level) const { return first_[level]; }

 private:
  const Cluster& cluster_;
  bool symmetric_;
  int ranks_;
  std::vector<double> ends_{};
  std::vector<int> first_{};  // of each level, of the memories, of the copy engines
};

}  // namespace roundelay::model
