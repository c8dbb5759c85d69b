#include "control/relay_control.h"

#include <string>
#include <utility>

#include "lock/relay.h"

namespace roundelay::control {

void RelayControl::on_lane_added(LaneId id, const LaneControl& lane) {
  lock::Relay* const relay = lane.table->relay();
  if (relay == nullptr) return;
  relay->connect([&link = link_, id, ranks = lane.group.ranks](int member, wire::Announced message) {
    message.lane = id;
    link.post(ranks[static_cast<std::size_t>(member)], std::move(message));
  });
}

void RelayControl::on_lane_removed(const LaneControl& lane) {
  if (lock::Relay* const relay = lane.table->relay()) relay->connect({});
}

void RelayControl::on_announced(int from, const wire::Announced& announced) {
  const LaneControl* const lane = lanes_.find(announced.lane);
  if (link_.aborted() || lane == nullptr) return;
  const std::optional<int> member = lane->member_of(from);
  lock::Relay* const relay = lane->table->relay();
  const Status taken = member && relay != nullptr
                           ? relay->take(*member, announced)
                           : Status::internal("it announces to a group without a relay");
  if (!taken.ok()) link_.abort({from, "rank " + std::to_string(from) + ": " + taken.message()});
}

}  // namespace roundelay::control
