// Gives rank 0's tickets, which put the operations of all process sets on GPUs into one order. Pure.
//
// Two collectives on one GPU wait for each other for ever if ranks enqueue them in different orders. Within a
// lane the orders prevent that; between lanes the tickets do.
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

  // Adds the lane of a process set other than the world. False if the world does not have these ranks.
  [[nodiscard]] bool open(LaneId lane, std::vector<std::int32_t> ranks);
  void close(LaneId lane) { lanes_.erase(lane); }
  // Returns the world ranks of each lane that is open.
  [[nodiscard]] const std::map<LaneId, std::vector<std::int32_t>>& lanes() const { return lanes_; }

  // Returns whether the lane is open and `rank` is its coordinator.
  [[nodiscard]] bool coordinates(std::int32_t rank, LaneId lane) const;

  // Returns false while the world has the GPUs to itself. When the last other set is gone, the world takes
  // one more ticket. So all later operations of the world come after all that the other sets enqueued.
  [[nodiscard]] bool world_takes_tickets() const { return !lanes_.empty() || others_were_last_; }

  // Returns one ticket for each of the lane's next operations. Nothing if the lane is not open; the world's
  // always is.
  std::optional<wire::Tickets> issue(LaneId lane, std::size_t operations);

 private:
  std::map<LaneId, std::vector<std::int32_t>> lanes_;
  std::vector<std::uint64_t> last_;  // each world rank's newest ticket
  std::uint64_t next_ = 1;
  bool others_were_last_ = false;  // the newest ticket is not the world's
};

}  // namespace roundelay::negotiate
