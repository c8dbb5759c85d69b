// Where this process stands in the job. A node is the ranks with equal node id (hostname and boot id).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/group.h"
#include "base/status.h"

namespace roundelay::bootstrap {

struct RankInfo {
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
RankInfo rank_info_of(int rank, const std::vector<std::string>& node_ids);

// A group on two levels.
struct Levels {
  Group inner;  // its members on this process's node
  Group outer;  // one a node: those with this process's index in `inner`, nodes in the order of their first
                // ranks
};

// Pure. Nothing where the group is on one node, or its nodes do not have equally many, at least 2, of its
// members.
std::optional<Levels> levels_of(const Group& group, const std::vector<std::string>& node_ids);

// This process's node id: `override` (ROUNDELAY_NODE_ID) or hostname and boot id.
std::string node_id(const std::string& override);

}  // namespace roundelay::bootstrap
