// Finds the ranks that carry out a stage together, and the ends of links over which they send. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "model/stage.h"

namespace roundelay::model {

// Ranks and groups are numbered from 0 on. If all ranks of a job do the same at the same time, it is
// symmetric: then it has rank 0 alone, which stands for all, and each of its transfers stands for those of
// all ranks that share the end.
class Groups {
 public:
  // The cluster outlives it.
  Groups(const Cluster& cluster, bool symmetric);

  [[nodiscard]] int ranks() const { return ranks_; }
  // Returns the number of groups that carry out the stage, each by itself.
  [[nodiscard]] int count(const Stage& stage) const;
  // Returns the rank's group; -1: it takes no part.
  [[nodiscard]] int group_of(const Stage& stage, int rank) const;
  // Returns the group's ranks, ascending; none: the ranks of this number do not take part in the stage.
  [[nodiscard]] std::vector<int> members(const Stage& stage, int group) const;

  // A number of equal transfers over one end.
  struct Share {
    int end = 0;        // its index in ends()
    double weight = 1;  // the number of transfers that begin there at once
  };
  // Returns the transfers with which the group carries out the stage.
  [[nodiscard]] std::vector<Share> shares(const Stage& stage, int group) const;
  // Returns the bandwidth of each end, in bytes a second: those of level 0, of level 1 and so on, then each
  // rank's memory.
  [[nodiscard]] const std::vector<double>& ends() const { return ends_; }
  // Returns the index of a level's first end; for levels.size(), of the first memory.
  [[nodiscard]] int first_end(std::size_t level) const { return first_[level]; }

 private:
  const Cluster& cluster_;
  bool symmetric_;
  int ranks_;
  std::vector<double> ends_{};
  std::vector<int> first_{};  // index in ends_ of each level's first end, of the first memory
};

}  // namespace roundelay::model
