// Orders go out; those with operations on a GPU, where other process sets have some too, with tickets of rank
// 0.
#include <utility>

#include "runtime/session/negotiator.h"

namespace roundelay::runtime {

bool Negotiator::give_orders(TimePoint now) {
  bool moved = false;
  for (auto& [id, lane] : lanes_) {
    if (!lane.coordinator || lane.closed) continue;
    const bool world_shares = rank_ == 0 && id == LaneId{} && gpu_order_.world_takes_tickets();
    lane.coordinator->take_tickets(world_shares || shares_gpus(id, lane));
    while (auto order = lane.coordinator->take_order(now)) {
      moved = true;
      lane.orders.push(std::move(*order));
    }
    request_tickets(id, lane);
    while (const auto order = lane.orders.take()) {
      give(id, lane, *order);
      if (aborted_) return true;
    }
    for (const auto& note : lane.coordinator->take_ready_notes()) sink_.ready(id, note);
    warn_of_the_late(*lane.coordinator, now);
    if (const auto fault = lane.coordinator->take_fault(now)) abort(*fault, rank_);
    if (aborted_) return true;
  }
  return moved;
}

void Negotiator::give(LaneId id, const Lane& lane, const wire::Order& order) {
  ++counters_.orders;
  for (const int rank : lane.group.ranks) {
    if (rank != rank_) send(rank, order);
  }
  if (order.removed && shares_gpus(id, lane)) tell_ticket_members(id, {});
  on_order(order);
}

void Negotiator::request_tickets(LaneId id, Lane& lane) {
  while (const auto request = lane.orders.take_request()) {
    if (rank_ != 0) {
      send(0, *request);
    } else if (auto tickets = gpu_order_.issue(id, request->operations);
               !tickets || !lane.orders.grant(request->sequence, std::move(*tickets))) {
      return end_tickets(0);
    }
  }
  if (rank_ != 0 && tickets_over_) lane.orders.refuse();
}

// Before anything can be submitted in the set: its members agree on it in the world only after this.
void Negotiator::tell_ticket_members(LaneId id, const std::vector<int>& ranks) {
  const wire::TicketMembers members{id, {ranks.begin(), ranks.end()}};
  if (rank_ == 0) {
    on_ticket_members(0, members);
  } else {
    send(0, members);
  }
}

void Negotiator::dispatch_tickets(int from, const wire::Message& message) {
  if (const auto* members = std::get_if<wire::TicketMembers>(&message)) {
    on_ticket_members(from, *members);
  } else if (const auto* request = std::get_if<wire::TicketRequest>(&message)) {
    on_ticket_request(from, *request);
  } else if (const auto* grant = std::get_if<wire::TicketGrant>(&message)) {
    on_ticket_grant(*grant);
  }
}

void Negotiator::on_ticket_members(int from, const wire::TicketMembers& members) {
  if (members.ranks.empty()) {
    gpu_order_.close(members.lane);
  } else if (rank_ != 0 || members.ranks.front() != from || members.lane.process_set == 0 ||
             !gpu_order_.open(members.lane, members.ranks)) {
    end_tickets(from);
  }
}

void Negotiator::on_ticket_request(int from, const wire::TicketRequest& request) {
  if (tickets_over_) return;  // it has been told
  const auto found = gpu_order_.lanes().find(request.lane);
  if (found == gpu_order_.lanes().end() || found->second.front() != from) return end_tickets(from);
  send(from,
       wire::TicketGrant{request.lane, request.sequence, gpu_order_.issue(request.lane, request.operations)});
}

void Negotiator::on_ticket_grant(const wire::TicketGrant& grant) {
  if (!grant.tickets) {
    tickets_over_ = true;
    return;
  }
  const auto found = lanes_.find(grant.lane);
  if (found == lanes_.end() || found->second.closed) return;
  if (!found->second.orders.grant(grant.sequence, *grant.tickets)) end_tickets(0);
}

void Negotiator::refuse_tickets() {
  if (rank_ != 0 || std::exchange(tickets_over_, true)) return;
  for (const auto& [id, ranks] : gpu_order_.lanes()) {
    if (ranks.front() != 0) send(ranks.front(), wire::TicketGrant{id, 0, std::nullopt});
  }
}

void Negotiator::end_tickets(int from) {
  abort({from, "rank " + std::to_string(from) + " broke the protocol of turns on GPUs: it told rank " +
                   std::to_string(rank_) +
                   " of a process set that is not there, or numbered what nobody asked for"},
        rank_);
}

}  // namespace roundelay::runtime
