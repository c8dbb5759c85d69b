// Session's part as NegotiationSink: it passes the decisions of the control plane on to lanes and handles.
#include <cstring>
#include <utility>

#include "runtime/session/session.h"

namespace roundelay::runtime {

void Session::ordered(LaneId, std::uint64_t sequence) {
  timeline_.events().record_order(sequence, steady_now());
}

void Session::execute(LaneId id, std::uint64_t sequence, negotiate::Execution execution) {
  if (const auto lane = sets_.lane_of(id)) lane->enqueue(sequence, execution);
}

void Session::settle(LaneId id, negotiate::Settled settled) {
  const auto lane = sets_.lane_of(id);
  if (!lane) return;
  lane->table().join_failed(settled.counters);
  completer_.complete(lane->table(), settled.name, settled.status);
}

void Session::locked(LaneId id, std::uint64_t sequence) {
  if (const auto lane = sets_.lane_of(id)) lane->begin_schedule(sequence);
}

void Session::unlock(LaneId id, std::uint64_t from) {
  if (const auto lane = sets_.lane_of(id)) lane->end_schedule(from);
}

void Session::joined(LaneId id, const wire::Joined& joined) {
  const auto lane = sets_.lane_of(id);
  if (!lane) return;
  lane->table().joined(joined.counters);
  auto entry = lane->table().extract(submit::kJoinName);
  if (!entry) return;
  Status outcome;
  if (entry->results != nullptr) {
    const Result<submit::Results::Memory> output = entry->results->allocate(0, {1});
    const std::int64_t last_rank = joined.last_rank;
    if (output.ok()) std::memcpy(output->data, &last_rank, sizeof(last_rank));
    outcome = output.status();
  }
  completer_.complete(lane->table(), *entry, outcome);
}

void Session::rank_left(LaneId id, int by_rank) {
  const std::string who = by_rank == parts_.rank_info.rank ? "this rank" : "rank " + std::to_string(by_rank);
  if (const auto lane = sets_.lane_of(id)) {
    completer_.fail_all(lane->table(), Status::aborted(who + " has called shutdown() or ended, which ends "
                                                             "communication for all ranks"));
  }
  if (id == world_->id()) timeline_.send_last();
  engine_.wake();
  open_lanes_.close(id);
}

void Session::abort(const Status& cause) {
  if (!abort_.raise(cause)) return;
  if (parts_.backend != nullptr) parts_.backend->poison(cause.message());
  fail_all(cause);
  lane_threads_.wake();
  timeline_.abort();
  open_lanes_.abort();
}

void Session::ready(LaneId, const negotiate::ReadyNote& note) {
  timeline_.events().record_ready(note.name, note.last_rank, note.waited, steady_now());
}

void Session::clock_offset(std::int64_t nanoseconds) { timeline_.events().set_offset(Duration(nanoseconds)); }

}  // namespace roundelay::runtime
