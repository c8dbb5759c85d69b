// Rank 0's book: in which order all process sets enqueue their operations on GPUs. Pure.
//
// Two collectives on one GPU wait for each other when ranks enqueue them in different orders. Within a lane
// orders prevent that; between lanes these tickets do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/group.h"
#include "wire/messages.h"

namespace roundelay::negotiate {

class GpuOrder {
 public:
  explicit GpuOrder(int world_size) : last_(static_cast<std::size_t>(world_size), 0) {}

  // A process set other than the world comes or goes. False: ranks that the world does not have.
  [[nodiscard]] bool open(LaneId lane, std::vector<std::int32_t> ranks);
  void close(LaneId lane) { lanes_.erase(lane); }
  // By lane, but for the world's.
  [[nodiscard]] const std::map<LaneId, std::vector<std::int32_t>>& lanes() const { return lanes_; }

  // Not while the world has the GPUs to itself. When the last other set is gone it takes one more turn: what
  // comes behind that in its lane comes behind all that the others enqueued, too.
  [[nodiscard]] bool world_takes_tickets() const { return !lanes_.empty() || others_were_last_; }

  // For the lane's next so many operations. Nothing: there is no such lane.
  std::optional<wire::Tickets> issue(LaneId lane, std::size_t operations);

 private:
  std::map<LaneId, std::vector<std::int32_t>> lanes_;
  std::vector<std::uint64_t> last_;  // by world rank: its newest ticket
  std::uint64_t next_ = 1;
  bool others_were_last_ = false;
};

}  // namespace roundelay::negotiate
