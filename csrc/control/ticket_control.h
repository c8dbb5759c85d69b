// Exchanges the messages that put the GPU operations of several process sets into one order
// (negotiate/gpu_order.h): the coordinators of process sets ask rank 0 for tickets (wire::Tickets), and rank
// 0 gives them. Only the holder of the negotiation token uses it.
#pragma once

#include "base/group.h"
#include "control/control_link.h"
#include "control/lane_control.h"
#include "negotiate/gpu_order.h"
#include "wire/messages.h"

namespace roundelay::control {

class TicketControl {
 public:
  // The references outlive this object. `size`: ranks in the world.
  TicketControl(ControlLink& link, LaneControls& lanes, int size)
      : link_(link), lanes_(lanes), gpu_order_(size) {}

  // Tells rank 0 the members of a new lane, if this rank coordinates it and it needs tickets. Call it before
  // anything can be submitted to the lane.
  void on_lane_added(LaneId id, const LaneControl& lane);
  // Tells rank 0 that the lane needs no more tickets.
  void on_lane_over(LaneId id, const LaneControl& lane);
  // Returns true if the GPU operations of this coordinator's lane need tickets: other process sets may use
  // the GPUs too.
  [[nodiscard]] bool needs_tickets(LaneId id, const LaneControl& lane) const;
  // Asks rank 0 for the tickets that the lane's orders need. On rank 0 the orders get them at once.
  void request_tickets(LaneId id, LaneControl& lane);

  // Take messages from other ranks. A message that breaks the protocol ends communication.
  void on_members(int from, const wire::TicketMembers& members);
  void on_request(int from, const wire::TicketRequest& request);
  void on_grant(const wire::TicketGrant& grant);

  // Call it when this rank leaves. Rank 0 then tells the coordinators that it gives no more tickets.
  void leave();
  // Call it when the connection to rank 0 is lost: no more tickets come.
  void on_rank_0_lost() { over_ = true; }

 private:
  // Returns true for the coordinator of a set, other than the world, that has several ranks.
  [[nodiscard]] static bool coordinates_small_set(LaneId id, const LaneControl& lane) {
    return lane.coordinator && id.process_set != 0 && lane.group.size() > 1;
  }
  void tell_members(LaneId id, const std::vector<int>& ranks);
  void abort_for(int culprit);

  ControlLink& link_;
  LaneControls& lanes_;
  negotiate::GpuOrder gpu_order_;  // used on rank 0 only
  bool over_ = false;              // rank 0 gives no more tickets
};

}  // namespace roundelay::control
