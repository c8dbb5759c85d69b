// Gives the orders of the lanes that this rank coordinates, and applies the orders that this rank gets.
#include <string>
#include <utility>

#include "control/negotiator.h"

namespace roundelay::control {

bool Negotiator::hand_over_orders(TimePoint now) {
  bool moved = false;
  for (auto& [id, lane] : lanes_) {
    if (!lane.coordinator || lane.closed) continue;
    lane.coordinator->take_tickets(tickets_.needs_tickets(id, lane));
    lane.coordinator->note_waiters(lane.table->waiters().take_most());
    while (auto order = lane.coordinator->take_order(now)) {
      moved = true;
      lane.orders.push(std::move(*order));
    }
    tickets_.request_tickets(id, lane);
    while (auto order = lane.orders.take()) {
      hand_over(id, lane, std::move(*order));
      if (link_.aborted()) return true;
    }
    for (const auto& note : lane.coordinator->take_ready_notes()) sink_.ready(id, note);
    stall_watch_.warn_of_late_ranks(*lane.coordinator, now);
    if (const auto fault = lane.coordinator->take_fault(now)) link_.abort(*fault);
    if (link_.aborted()) return true;
  }
  return moved;
}

void Negotiator::hand_over(LaneId id, const LaneControl& lane, wire::Order order) {
  ++link_.counters().orders;
  const wire::Message message(std::move(order));
  if (lane.group.size() > 1) link_.send_to_each(lane.group.ranks, message);
  const auto& given = std::get<wire::Order>(message);
  if (given.removed) tickets_.on_lane_over(id, lane);
  on_order(given);
}

void Negotiator::on_order(const wire::Order& order) {
  LaneControl* const lane = lanes_.find(order.lane);
  if (link_.aborted() || lane == nullptr) return;
  Result<negotiate::Applied> applied = lane->participant.apply(order);
  if (!applied.ok()) {
    return link_.abort({rank_, "rank " + std::to_string(rank_) + ": " + applied.status().message()});
  }
  sink_.ordered(order.lane, order.sequence);
  if (applied->freeze) lane->table->freeze();
  if (applied->unlock) {
    ++link_.counters().unlocks;
    sink_.unlock(order.lane, *applied->unlock);
    lane->flush_requested = true;  // callers that wait for announced uses have requested no flush
  }
  for (auto& execution : applied->operations) {
    sink_.execute(order.lane, order.sequence, std::move(execution));
  }
  settle_all(order.lane, std::move(applied->failed));
  if (applied->joined) sink_.joined(order.lane, *applied->joined);
  settle_all(order.lane, lane->participant.take_settled());
  if (applied->schedule) {
    begin_schedule(order.lane, *lane, order.sequence, std::move(*applied->schedule));
  }
  close(order.lane, *lane, *applied);
}

// Closes the lane if the order was its last one.
void Negotiator::close(LaneId id, LaneControl& lane, const negotiate::Applied& applied) {
  lane.closed = applied.shutdown_by >= 0 || applied.removed;
  if (lane.closed) lane.watchdog.on_closed();
  if (applied.shutdown_by >= 0) sink_.rank_left(id, applied.shutdown_by);
  if (applied.removed) sink_.removed(id);
}

void Negotiator::begin_schedule(LaneId id, LaneControl& lane, std::uint64_t sequence,
                                negotiate::Schedule schedule) {
  ++link_.counters().locks;
  lane.table->begin_schedule(schedule.number, schedule.operations, std::move(schedule.returned),
                             schedule.gathers);
  sink_.locked(id, sequence);
}

// Moves the table's new requests to the participant. Under a schedule lock the table keeps them, and only a
// freeze is a change.
void Negotiator::take_uses(LaneControl& lane) {
  if (!lane.table->scheduled()) {
    lane.table->drain(drained_);
    for (const wire::Use& use : drained_) lane.participant.submit(use);
    return;
  }
  if (lane.participant.ends()) lane.table->freeze();
  if (const auto announced = lane.table->frozen_after()) lane.participant.freeze(*announced);
}

void Negotiator::settle_all(LaneId id, std::vector<negotiate::Settled> settled) {
  for (auto& one : settled) sink_.settle(id, std::move(one));
}

}  // namespace roundelay::control
