// Who takes part: a process set's ranks and where this process stands among them.
#pragma once

#include <cstdint>
#include <vector>

namespace roundelay {

// 0 is the world. Users see the lowest number that is free; a LaneId's is never reused within an init.
using ProcessSetId = std::uint32_t;

struct Group {
  ProcessSetId id = 0;
  std::vector<int> ranks;  // world ranks, ascending (of a level between nodes: in the order of nodes)
  int index = 0;           // this process's position in `ranks`

  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
  [[nodiscard]] int world_rank() const { return ranks[static_cast<std::size_t>(index)]; }
};

// A lane is a (process set, device): its own order sequence, executor and communicator.
struct LaneId {
  ProcessSetId process_set = 0;
  std::int32_t device = kCpu;

  static constexpr std::int32_t kCpu = -1;
  friend auto operator<=>(const LaneId&, const LaneId&) = default;
};

}  // namespace roundelay
