// The place of this process in the job. A node consists of the ranks with equal node ids.
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
  int local_rank = 0;  // index among the ranks of this node
  int local_size = 1;
  int cross_rank = 0;  // index among the ranks with this local_rank, of which a node has at most one
  int cross_size = 1;
  bool homogeneous = true;  // all nodes have equally many ranks
};

// Returns the place of `rank`. `node_ids` has the ids of all ranks, by rank. Pure.
RankInfo rank_info_of(int rank, const std::vector<std::string>& node_ids);

// The two levels of a group, as this process sees them.
struct LevelGroups {
  Group inner;  // the members on this process's node
  Group outer;  // of each node the member with this process's index in `inner`, in the order of the nodes'
                // first ranks
};

// Returns the levels of `group`. Nothing if the group is on one node, or if its nodes do not have equally
// many members, at least 2. Pure.
std::optional<LevelGroups> levels_of(const Group& group, const std::vector<std::string>& node_ids);

// Returns this process's node id: `override` (ROUNDELAY_NODE_ID), or hostname and boot id if that is empty.
std::string node_id(const std::string& override);

}  // namespace roundelay::bootstrap
