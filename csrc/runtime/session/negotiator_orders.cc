// Orders go out; those with operations on a GPU, where other process sets have some too, with stamps of rank
// 0.
#include <utility>

#include "runtime/session/negotiator.h"

namespace roundelay::runtime {

bool Negotiator::give_orders(TimePoint now) {
  bool moved = false;
  for (auto& [id, lane] : lanes_) {
    if (!lane.coordinator || lane.closed) continue;
    const bool world_shares = rank_ == 0 && id == LaneId{} && turn_book_.world_takes_turns();
    lane.coordinator->take_turns(world_shares || shares_gpus(id, lane));
    while (auto order = lane.coordinator->take_order(now)) {
      moved = true;
      lane.orders.push(std::move(*order));
    }
    ask_for_turns(id, lane);
    while (const auto order = lane.orders.take()) {
      give(id, lane, *order);
      if (aborted_) return true;
    }
    for (const auto& note : lane.coordinator->take_ready_notes()) sink_.ready(id, note);
    warn_of_the_late(*lane.coordinator, now);
    if (const auto verdict = lane.coordinator->take_verdict(now)) abort(*verdict, rank_);
    if (aborted_) return true;
  }
  return moved;
}

void Negotiator::give(LaneId id, const Lane& lane, const wire::Order& order) {
  ++counters_.orders;
  for (const int rank : lane.group.ranks) {
    if (rank != rank_) send(rank, order);
  }
  if (order.removed && shares_gpus(id, lane)) tell_turn_members(id, {});
  on_order(order);
}

void Negotiator::ask_for_turns(LaneId id, Lane& lane) {
  while (const auto request = lane.orders.take_request()) {
    if (rank_ != 0) {
      send(0, *request);
    } else if (auto stamps = turn_book_.stamp(id, request->operations);
               !stamps || !lane.orders.grant(request->sequence, std::move(*stamps))) {
      return break_turns(0);
    }
  }
  if (rank_ != 0 && no_more_turns_) lane.orders.refuse();
}

// Before anything can be submitted in the set: its members agree on it in the world only after this.
void Negotiator::tell_turn_members(LaneId id, const std::vector<int>& ranks) {
  const wire::TurnMembers members{id, {ranks.begin(), ranks.end()}};
  if (rank_ == 0) {
    on_turn_members(0, members);
  } else {
    send(0, members);
  }
}

void Negotiator::dispatch_turns(int from, const wire::Message& message) {
  if (const auto* members = std::get_if<wire::TurnMembers>(&message)) {
    on_turn_members(from, *members);
  } else if (const auto* request = std::get_if<wire::TurnRequest>(&message)) {
    on_turn_request(from, *request);
  } else if (const auto* grant = std::get_if<wire::TurnGrant>(&message)) {
    on_turn_grant(*grant);
  }
}

void Negotiator::on_turn_members(int from, const wire::TurnMembers& members) {
  if (members.ranks.empty()) {
    turn_book_.close(members.lane);
  } else if (rank_ != 0 || members.ranks.front() != from || members.lane.process_set == 0 ||
             !turn_book_.open(members.lane, members.ranks)) {
    break_turns(from);
  }
}

void Negotiator::on_turn_request(int from, const wire::TurnRequest& request) {
  if (no_more_turns_) return;  // it has been told
  const auto found = turn_book_.lanes().find(request.lane);
  if (found == turn_book_.lanes().end() || found->second.front() != from) return break_turns(from);
  send(from,
       wire::TurnGrant{request.lane, request.sequence, turn_book_.stamp(request.lane, request.operations)});
}

void Negotiator::on_turn_grant(const wire::TurnGrant& grant) {
  if (!grant.stamps) {
    no_more_turns_ = true;
    return;
  }
  const auto found = lanes_.find(grant.lane);
  if (found == lanes_.end() || found->second.closed) return;
  if (!found->second.orders.grant(grant.sequence, *grant.stamps)) break_turns(0);
}

void Negotiator::refuse_turns() {
  if (rank_ != 0 || std::exchange(no_more_turns_, true)) return;
  for (const auto& [id, ranks] : turn_book_.lanes()) {
    if (ranks.front() != 0) send(ranks.front(), wire::TurnGrant{id, 0, std::nullopt});
  }
}

void Negotiator::break_turns(int from) {
  abort({from, "rank " + std::to_string(from) + " broke the protocol of turns on GPUs: it told rank " +
                   std::to_string(rank_) +
                   " of a process set that is not there, or stamped what nobody asked for"},
        rank_);
}

}  // namespace roundelay::runtime
