// The ranks of a process set, and this process's index among them.
#pragma once

#include <cstdint>
#include <vector>

namespace roundelay {

// Numbers a process set; 0 is the world. A set has two numbers (runtime/session/process_sets.h). The id that
// users see is the lowest free one and may be used again. The serial number, in Group and LaneId, is not used
// again before the next init.
using ProcessSetId = std::uint32_t;

// The members of a process set, or a part of them: those on a node, or one of each node.
struct Group {
  ProcessSetId id = 0;     // the set's serial number
  std::vector<int> ranks;  // world ranks, ascending; between nodes: in the order of the nodes
  int index = 0;           // this process's index in `ranks`

  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
  [[nodiscard]] int world_rank() const { return ranks[static_cast<std::size_t>(index)]; }
};

// Names a lane. A lane serves one process set on one device; it has its own sequence of orders, its own
// thread and its own communicator.
struct LaneId {
  ProcessSetId process_set = 0;  // the set's serial number
  std::int32_t device = kCpu;    // the number of a GPU in this process, or kCpu

  static constexpr std::int32_t kCpu = -1;
  friend auto operator<=>(const LaneId&, const LaneId&) = default;
};

}  // namespace roundelay
