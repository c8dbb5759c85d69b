// Where this process stands in the job. A node is the ranks with equal node id (hostname and boot id).
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace roundelay::runtime {

struct Placement {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this node
  int local_size = 1;
  int cross_rank = 0;  // among the nodes that have a rank with this local_rank
  int cross_size = 1;
  bool homogeneous = true;  // every node has as many ranks
};

// Whether so many ranks are more than this machine has cores: spinning would take the core that a peer needs.
bool outnumber_cores(int ranks);

// Pure: from everyone's node id, by rank.
Placement place(int rank, const std::vector<std::string>& node_ids);

// This process's node id: `override` (ROUNDELAY_NODE_ID) or hostname and boot id.
std::string node_id(const std::string& override);

}  // namespace roundelay::runtime
