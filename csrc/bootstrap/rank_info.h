// The place of this process in the job. A node consists of the ranks with equal node ids.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace roundelay::bootstrap {

struct RankInfo {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // index among the ranks of this node
  int local_size = 1;
  int cross_rank = 0;       // index among the ranks of all nodes that have this local_rank
  int cross_size = 1;       // the number of these ranks
  bool homogeneous = true;  // all nodes have equally many ranks
};

// Returns the place of `rank`. `node_ids` has the ids of all ranks, by rank. Pure.
RankInfo rank_info_of(int rank, const std::vector<std::string>& node_ids);

// Returns this process's node id: `override` (ROUNDELAY_NODE_ID), or hostname and boot id if that is empty.
std::string node_id(const std::string& override);

}  // namespace roundelay::bootstrap
