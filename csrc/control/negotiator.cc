#include "control/negotiator.h"

#include <string>
#include <utility>
#include <variant>

#include "base/overload.h"
#include "wire/codec.h"

namespace roundelay::control {

Negotiator::Negotiator(channel::Channel& channel, int rank, int size,
                       const negotiate::CoordinatorOptions& options, NegotiationSink& sink)
    : channel_(channel),
      rank_(rank),
      options_(options),
      sink_(sink),
      link_(channel, rank, size, lanes_, sink),
      tickets_(link_, lanes_, size),
      relays_(link_, lanes_),
      reports_(link_, lanes_),
      stall_watch_(link_, lanes_, sink, options.stall_warning != Duration{0}),
      clock_probe_(link_, sink) {}

void Negotiator::add_lane(LaneId id, const Group& group, submit::TensorTable& table) {
  std::vector<int> nodes;
  if (!nodes_.empty()) {
    for (const int rank : group.ranks) nodes.push_back(nodes_[static_cast<std::size_t>(rank)]);
  }
  const negotiate::ReportTree tree(nodes, group.size(), group.index, options_.fan_out);
  const LaneControl& lane = lanes_.add(id, group, tree, table, options_);
  tickets_.on_lane_added(id, lane);
  relays_.on_lane_added(id, lane);
}

void Negotiator::measure_clock(TimePoint now) {
  const LaneControl& world = *lanes_.find(LaneId{});
  clock_probe_.start(world.coordinator ? -1 : world.awaited_rank(), now);
}

void Negotiator::remove_lane(LaneId id) {
  const LaneControl* const lane = lanes_.find(id);
  if (lane == nullptr) return;
  if (!lane->closed) tickets_.on_lane_over(id, *lane);
  RelayControl::on_lane_removed(*lane);
  lanes_.remove(id);
}

void Negotiator::begin_removal(LaneId id) {
  if (LaneControl* const lane = lanes_.find(id)) lane->participant.remove();
}

bool Negotiator::step(TimePoint now) {
  // Receiving comes first: it takes back wake-ups, and those may be meant for what follows.
  bool moved = receive_all(now);
  moved = take_inbox(now) || moved;
  if (!link_.aborted()) {
    moved = apply_waiting(now) || moved;
    moved = send_reports(now) || moved;
    moved = reports_.send_merged(now) || moved;
    moved = hand_over_orders(now) || moved;
    moved = stall_watch_.check(now) || moved;
  }
  return link_.decide(now) || moved;
}

Deadline Negotiator::next_due() const {
  if (link_.aborted()) return link_.next_due();
  Deadline due = stall_watch_.next_due().sooner(waiting_due_).sooner(reports_.next_due());
  for (const auto& [id, lane] : lanes_) {
    if (lane.coordinator && !lane.closed) due = due.sooner(lane.coordinator->next_due());
  }
  return due;
}

bool Negotiator::receive_all(TimePoint now) {
  bool moved = false;
  while (auto incoming = channel_.receive()) {
    moved = true;
    if (!incoming->lost.ok()) {
      on_lost(incoming->from, incoming->lost);
      continue;
    }
    Result<wire::Message> message = wire::decode(incoming->bytes);
    if (message.ok()) {
      dispatch(incoming->from, std::move(message).value(), now);
    } else {
      link_.abort({incoming->from, "rank " + std::to_string(incoming->from) + " sent rank " +
                                       std::to_string(rank_) +
                                       " a message that cannot be read: " + message.status().message()});
    }
  }
  return moved;
}

void Negotiator::dispatch(int from, wire::Message message, TimePoint now) {
  stall_watch_.on_heard(from, now);
  std::visit(Overload{
                 [&](const wire::Report& report) { reports_.on_report(from, report, now); },
                 [&](wire::Reports& reports) { reports_.on_reports(from, std::move(reports), now); },
                 [&](const wire::Order& order) { on_order(order); },
                 [&](const wire::Abort& fault) { link_.abort(fault, from); },
                 [&](const wire::Stuck& stuck) { stall_watch_.on_stuck(from, stuck, now); },
                 [&](const wire::Ping& ping) { clock_probe_.on_ping(from, ping, now); },
                 [&](const wire::Pong& pong) {
                   stall_watch_.on_sign_of_life(from);
                   clock_probe_.on_pong(pong, steady_now());
                 },
                 [&](wire::TimelineChunk& chunk) { sink_.timeline_chunk(std::move(chunk)); },
                 [&](const wire::TimelineSwitch& to) { sink_.timeline_switch(to); },
                 [&](const wire::StateQuestion&) { sink_.state_asked(from); },
                 [&](const wire::StateAnswer& answer) { stall_watch_.on_state(from, answer.text); },
                 [&](const wire::TicketMembers& members) {
                   if (!link_.aborted()) tickets_.on_members(from, members);
                 },
                 [&](const wire::TicketRequest& request) {
                   if (!link_.aborted()) tickets_.on_request(from, request);
                 },
                 [&](const wire::TicketGrant& grant) {
                   if (!link_.aborted()) tickets_.on_grant(grant);
                 },
                 [&](const wire::Announced& announced) { relays_.on_announced(from, announced); },
                 // Channels and bootstraps take these two; no rank sends them to a negotiator.
                 [](const wire::Hello&) {},
                 [](const wire::Introduction&) {},
             },
             message);
}

bool Negotiator::take_inbox(TimePoint now) {
  ControlInbox::Contents contents = inbox_.drain();
  for (const auto& task : contents.tasks) task();
  for (const LaneId id : contents.end_linger) {
    if (LaneControl* const lane = lanes_.find(id)) lane->end_linger = true;
  }
  for (auto& message : contents.messages) act_on(std::move(message), now);
  return !contents.tasks.empty() || !contents.messages.empty();
}

void Negotiator::act_on(ControlInbox::Message message, TimePoint now) {
  std::visit(Overload{
                 [&](const wire::Stuck& stuck) { stall_watch_.on_stuck(rank_, stuck, now); },
                 [&](const wire::Abort& fault) { link_.abort(fault); },
                 [&](wire::TimelineChunk& chunk) { on_chunk(std::move(chunk)); },
                 [&](const wire::TimelineSwitch& to) { link_.send_to_others(to); },
                 [&](const StateReply& reply) { on_reply(reply); },
             },
             message);
}

void Negotiator::on_chunk(wire::TimelineChunk chunk) {
  if (rank_ == 0) {
    sink_.timeline_chunk(std::move(chunk));
  } else {
    link_.send(0, std::move(chunk));
  }
}

void Negotiator::on_reply(const StateReply& reply) {
  if (reply.to == rank_) {
    stall_watch_.on_state(rank_, reply.text);
  } else {
    link_.send(reply.to, wire::StateAnswer{reply.text});
  }
}

void Negotiator::on_lost(int from, const Status& why) {
  if (from == 0) tickets_.on_rank_0_lost();
  if (!lanes_.shares_open_lane(from)) return;  // the rank has left in order, and closes its connections
  link_.abort({from, "rank " + std::to_string(from) + " is gone: " + why.message() +
                         "; its process ended or its host is unreachable: look for its own last message"});
}

bool Negotiator::send_reports(TimePoint now) {
  const bool end_linger = inbox_.take_end_of_linger();
  const bool leaving = inbox_.leaving();
  bool moved = false;
  if (leaving) tickets_.leave();
  for (auto& [id, lane] : lanes_) {
    if (lane.closed) continue;
    if (leaving) lane.participant.leave();
    lane.take_submissions(drained_);
    if (std::exchange(lane.end_linger, false) || end_linger) lane.participant.end_linger();
    auto failed = lane.participant.take_failed();
    moved = moved || !failed.empty();  // a caller may wait for one of these: it must look before it sleeps
    fail_submissions(id, std::move(failed));
    auto report = lane.participant.take_report();
    if (!report) continue;
    moved = true;
    reports_.send(lane, std::move(*report), now);
  }
  return moved;
}

// -- orders

bool Negotiator::hand_over_orders(TimePoint now) {
  bool moved = false;
  for (auto& [id, lane] : lanes_) {
    if (!lane.coordinator || lane.closed) continue;
    lane.coordinator->set_needs_tickets(tickets_.needs_tickets(id, lane));
    while (auto order = lane.coordinator->take_order(now)) {
      moved = true;
      lane.orders.push(std::move(*order));
    }
    tickets_.request_tickets(id, lane);
    while (auto order = lane.orders.pop()) {
      hand_over(id, lane, *order);
      if (link_.aborted()) return true;
    }
    for (const auto& note : lane.coordinator->take_ready_notes()) sink_.ready(id, note);
    stall_watch_.warn_of_late_ranks(*lane.coordinator, now);
    if (const auto fault = lane.coordinator->take_fault(now)) link_.abort(*fault);
    if (link_.aborted()) return true;
  }
  return moved;
}

void Negotiator::hand_over(LaneId id, const LaneControl& lane, const wire::Order& order) {
  ++link_.counters().orders;
  if (order.removed) tickets_.on_lane_over(id, lane);
  on_order(order);
}

void Negotiator::on_order(const wire::Order& order) {
  LaneControl* const lane = lanes_.find(order.lane);
  if (link_.aborted() || lane == nullptr) return;
  if (lane->merger) lane->merger->on_order(order);
  if (!lane->below.empty()) link_.send_to_each(lane->below, order);
  if (lane->waiting.empty() && lane->may_apply(order)) return apply(order.lane, *lane, order);
  lane->waiting.push_back(order);
}

// Who leads this node wakes no thread here that sleeps in the channel.
bool Negotiator::apply_waiting(TimePoint now) {
  constexpr Duration kLook = std::chrono::milliseconds(1);
  bool moved = false;
  waiting_due_ = Deadline::never();
  for (auto& [id, lane] : lanes_) {
    for (; !lane.waiting.empty() && lane.may_apply(lane.waiting.front()); moved = true) {
      apply(id, lane, lane.waiting.front());
      if (link_.aborted()) return true;
      lane.waiting.pop_front();
    }
    if (!lane.waiting.empty()) waiting_due_ = Deadline::at(now + kLook);
  }
  return moved;
}

void Negotiator::apply(LaneId id, LaneControl& lane, const wire::Order& order) {
  Result<negotiate::Applied> applied = lane.participant.apply(order);
  if (!applied.ok()) {
    return link_.abort({rank_, "rank " + std::to_string(rank_) + ": " + applied.status().message()});
  }
  sink_.ordered(id, order.sequence);
  if (applied->freeze) lane.table->freeze();
  if (applied->unlock) {
    ++link_.counters().unlocks;
    sink_.unlock(id, *applied->unlock);
    lane.end_linger = true;  // callers that wait for announced submissions have not asked for it
  }
  for (auto& ordered : applied->operations) sink_.execute(id, order.sequence, std::move(ordered));
  fail_submissions(id, std::move(applied->failed));
  if (applied->joined) sink_.joined(id, *applied->joined);
  fail_submissions(id, lane.participant.take_failed());
  if (applied->schedule) begin_schedule(id, lane, order.sequence, std::move(*applied->schedule));
  close(id, lane, *applied);
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
  lane.table->begin_schedule(schedule.number, schedule.operations, std::move(schedule.returned));
  sink_.locked(id, sequence);
}

void Negotiator::fail_submissions(LaneId id, std::vector<negotiate::FailedSubmission> failed) {
  for (auto& one : failed) sink_.fail_submission(id, std::move(one));
}

}  // namespace roundelay::control
