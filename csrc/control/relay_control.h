// The control plane's part in schedules between nodes: carries the messages of relays (lock/relay.h).
#pragma once

#include "control/control_link.h"
#include "control/lane_control.h"
#include "wire/messages.h"

namespace roundelay::control {

// Only the holder of the negotiation token uses it. But a rank that announces sends by itself, whoever holds
// the token.
class RelayControl {
 public:
  // The references outlive this object.
  RelayControl(ControlLink& link, LaneControls& lanes) : link_(link), lanes_(lanes) {}

  void on_lane_added(LaneId id, const LaneControl& lane);
  // Ends the lane's relay: it sends nothing more.
  static void on_lane_removed(const LaneControl& lane);
  // Takes a message of another rank, or of this one.
  void on_announced(int from, const wire::Announced& announced);

 private:
  ControlLink& link_;
  LaneControls& lanes_;
};

}  // namespace roundelay::control
