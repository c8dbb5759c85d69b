#include "control/ticket_control.h"

#include <optional>
#include <string>
#include <utility>

namespace roundelay::control {

void TicketControl::on_lane_added(LaneId id, const LaneControl& lane) {
  if (coordinates_small_set(id, lane)) tell_members(id, lane.group.ranks);
}

void TicketControl::on_lane_over(LaneId id, const LaneControl& lane) {
  if (coordinates_small_set(id, lane)) tell_members(id, {});
}

bool TicketControl::needs_tickets(LaneId id, const LaneControl& lane) const {
  const bool world_shares = link_.rank() == 0 && id == LaneId{} && gpu_order_.world_takes_tickets();
  return world_shares || coordinates_small_set(id, lane);
}

void TicketControl::tell_members(LaneId id, const std::vector<int>& ranks) {
  const wire::TicketMembers members{id, {ranks.begin(), ranks.end()}};
  if (link_.rank() == 0) {
    on_members(0, members);
  } else {
    link_.send(0, members);
  }
}

void TicketControl::request_tickets(LaneId id, LaneControl& lane) {
  while (const auto request = lane.orders.take_request()) {
    if (link_.rank() != 0) {
      link_.send(0, *request);
    } else if (auto tickets = gpu_order_.issue(id, request->operations);
               !tickets || !lane.orders.grant(request->sequence, std::move(*tickets))) {
      return abort_for(0);
    }
  }
  if (link_.rank() != 0 && over_) lane.orders.refuse();
}

void TicketControl::on_members(int from, const wire::TicketMembers& members) {
  if (members.ranks.empty()) {
    if (!gpu_order_.coordinates(from, members.lane)) return abort_for(from);
    gpu_order_.close(members.lane);
  } else if (link_.rank() != 0 || members.ranks.front() != from || members.lane.process_set == 0 ||
             !gpu_order_.open(members.lane, members.ranks)) {
    abort_for(from);
  }
}

void TicketControl::on_request(int from, const wire::TicketRequest& request) {
  if (over_) return;  // leave() has told the coordinator
  if (!gpu_order_.coordinates(from, request.lane)) return abort_for(from);
  link_.send(from, wire::TicketGrant{request.lane, request.sequence,
                                     gpu_order_.issue(request.lane, request.operations)});
}

void TicketControl::on_grant(const wire::TicketGrant& grant) {
  if (!grant.tickets) {
    over_ = true;
    return;
  }
  LaneControl* const lane = lanes_.find(grant.lane);
  if (lane == nullptr || lane->closed) return;
  if (!lane->orders.grant(grant.sequence, *grant.tickets)) abort_for(0);
}

void TicketControl::leave() {
  if (link_.rank() != 0 || std::exchange(over_, true)) return;
  for (const auto& [id, ranks] : gpu_order_.lanes()) {
    if (ranks.front() != 0) link_.send(ranks.front(), wire::TicketGrant{id, 0, std::nullopt});
  }
}

void TicketControl::abort_for(int culprit) {
  link_.abort({culprit, "rank " + std::to_string(culprit) +
                            " broke the protocol of tickets on GPUs: it told rank " +
                            std::to_string(link_.rank()) +
                            " of a process set that is not there, or numbered what nobody asked for"});
}

}  // namespace roundelay::control
