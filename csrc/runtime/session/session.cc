#include "runtime/session/session.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "trust/trust.h"

namespace roundelay::runtime {
namespace {

constexpr Duration kCloseTimeout = std::chrono::seconds(2);

negotiate::CoordinatorOptions coordinator_options(const Config& config, int ranks) {
  negotiate::CoordinatorOptions options;
  const auto theta = static_cast<std::size_t>(config.theta.number);
  options.plan.fusion_threshold_bytes = fusion_threshold(config, ranks);
  options.plan.theta_bytes = theta;
  options.fire = {theta, config.cycle_time};
  options.cache_capacity = static_cast<std::size_t>(config.cache_capacity);
  options.stall_warning = config.stall_check_disable ? Duration{0} : config.stall_check_time;
  options.stall_abort = config.stall_shutdown_time;
  options.schedule_lock = config.schedule_lock;
  options.fan_out = static_cast<int>(config.fan_out);
  return options;
}

}  // namespace

Session::Session(SessionParts parts)
    : parts_(std::move(parts)),
      negotiator_(*parts_.channel, parts_.rank_info.rank, parts_.rank_info.size,
                  coordinator_options(parts_.config, parts_.rank_info.size), *this),
      timeline_(parts_.rank_info.rank, parts_.rank_info.size, std::move(parts_.timeline_file),
                negotiator_.inbox()),
      completer_(handles_,
                 [this](const submit::Entry& entry, TimePoint now) { timeline_.record(entry, now); }),
      lane_factory_(parts_, {completer_, timeline_.events(), abort_, negotiator_.inbox()},
                    [this] { lane_threads_.wake(); }),
      sets_(parts_.rank_info.rank),
      world_(lane_factory_.make(LaneId{}, std::move(parts_.fabrics), std::move(parts_.device_medium),
                                parts_.channel->any_thread())),
      lane_threads_(open_lanes_, !parts_.channel->any_thread() || !world_->caller_may_drive()),
      engine_(*parts_.channel, negotiator_, handles_, lane_threads_, parts_.crowded,
              [this](TimePoint now) { return timeline_.send_if_due(now).sooner(inquiry_.look(now)); }),
      inquiry_(parts_.whereabouts,
               [this](int by_rank, std::string text) {
                 negotiator_.inbox().post(control::StateReply{by_rank, std::move(text)});
                 engine_.wake();
               }),
      operations_(sets_, handles_, engine_, negotiator_.inbox(), parts_.gpu.runtime),
      set_changes_({parts_, abort_, completer_, sets_, open_lanes_, lane_factory_, lane_threads_, negotiator_,
                    engine_, operations_},
                   [this](const std::string& why) { report_fault(why); }) {
  const Group& group = world_->group();
  sets_.add_lane(world_);
  sets_.publish({0, group.ranks, world_, false});
  open_lanes_.add(world_->id());
  negotiator_.set_neighbours(control::Neighbours(std::move(parts_.neighbours)));
  negotiator_.set_nodes(std::move(parts_.nodes));
  negotiator_.add_lane(world_->id(), group, world_->table());
  lane_threads_.add(world_);
  negotiator_.measure_clock(steady_now());
  if (parts_.rank_info.size > 1) engine_.start();
  if (timeline_.is_open()) record_everywhere(parts_.config.timeline_mark_cycles);
}

Result<std::vector<int>> Session::level_sizes(ProcessSetId id, DeviceType device) {
  const Result<std::shared_ptr<execute::Lane>> lane = sets_.lane_for_use(id);
  if (!lane.ok()) return lane.status();
  return (*lane)->level_sizes(device);
}

void Session::end_wait() {
  const auto wait = handles_.end_wait();
  if (!wait) return;
  timeline_.events().record_span(timeline::Row::kTraining, "synchronize", wait->begin, wait->end);
}

std::map<std::string, std::int64_t> Session::stats() const {
  execute::LaneCounters lane;
  sets_.add_counters(lane);
  const control::ControlCounters& control = negotiator_.counters();
  const complete::Exposure::Times time = handles_.exposure();
  const pointers::PointerCache::Counts pointers = parts_.gpu.pointers.counts();
  return {{"operations", lane.operations},
          {"tensors", lane.tensors},
          {"fused_tensors", lane.fused_tensors},
          {"bytes", lane.bytes},
          {"bytes_staged", lane.bytes_staged},
          {"sleeps", lane.sleeps},
          {"wakes", lane.wakes},
          {"locked_operations", lane.locked_operations},
          {"gpu_operations", lane.gpu_operations},
          {"gpu_sums", lane.gpu_sums},
          {"gpu_sum_bytes", lane.gpu_sum_bytes},
          {"pointer_hits", pointers.hits},
          {"pointer_misses", pointers.misses},
          {"technique_operations", lane.technique_operations},
          {"technique_bytes", lane.technique_bytes},
          {"technique_called_bytes", lane.technique_called_bytes},
          {"schedule_locks", control.locks},
          {"schedule_unlocks", control.unlocks},
          {"reports_sent", control.reports},
          {"orders_given", control.orders},
          {"messages_sent", control.messages_sent},
          {"message_bytes", control.message_bytes},
          {"strangers", static_cast<std::int64_t>(trust::strangers_dropped())},
          {"wakeups_sent", parts_.channel->wakeups_sent()},
          {"cached_requests", control.cached_requests},
          {"full_requests", control.full_requests},
          {"under_way_ns", time.under_way.count()},
          {"exposed_ns", time.exposed.count()}};
}

Status Session::start_timeline(const std::string& path, bool mark_cycles) {
  if (parts_.rank_info.rank != 0) return {};  // rank 0's call starts the timeline here too
  if (timeline_.is_open()) stop_recording();  // what was recorded until now belongs to that file
  Status opened = timeline_.open(path);
  if (timeline_.is_open()) record_everywhere(mark_cycles);
  return opened;
}

void Session::record_everywhere(bool mark_cycles) {
  timeline_.start_everywhere(mark_cycles);
  engine_.start();
  engine_.wake_background();
}

void Session::stop_recording() {
  timeline_.stop_everywhere();
  engine_.wake_background();
  timeline_.wait_for_last_chunks();
}

Status Session::stop_timeline() {
  if (parts_.rank_info.rank != 0) return {};
  stop_recording();
  return timeline_.close();
}

void Session::fail(const std::string& why) {
  if (parts_.rank_info.size == 1) return;
  report_fault(why);
  static_cast<void>(open_lanes_.wait_until_all_closed(Deadline::after(kCloseTimeout)));
}

void Session::report_fault(const std::string& why) {
  negotiator_.inbox().post(wire::Abort{parts_.rank_info.rank, why});
  engine_.wake();
}

void Session::shutdown() {
  if (stopped_.exchange(true)) return;
  set_changes_.refuse();
  if (!abort_.raised()) leave();
  fail_all(Status::aborted("this rank has called shutdown()"));
  set_changes_.wait_until_over();
  engine_.stop();
  parts_.channel->close(Deadline::after(kCloseTimeout));
  for (const auto& lane : sets_.lanes()) lane_threads_.fail_remaining_work(*lane);
  // Peers that still wait for this rank hear from its fabrics that it has left.
  if (parts_.call_order) world_->close_fabrics();
  static_cast<void>(timeline_.close());
}

void Session::leave() {
  negotiator_.inbox().request_leave();
  engine_.start();
  engine_.wake();
  if (!open_lanes_.wait_until_all_closed(Deadline::after(parts_.config.progress_timeout))) {
    const std::string text = "no coordinator answered this rank's shutdown() in time";
    log(LogLevel::kWarning, text);
    if (parts_.backend != nullptr) parts_.backend->poison(text);  // finalising would wait for the coordinator
  }
  // All ranks finish what was ordered before the last order, or each operation fails by its own deadline.
  const auto lanes = sets_.lanes();
  const auto busy = [&] {
    return std::any_of(lanes.begin(), lanes.end(),
                       [](const auto& lane) { return lane->has_work() || lane->watches_device(); });
  };
  open_lanes_.wait_while(busy, Deadline::never());
  timeline_.wait_for_last_chunks();
}

void Session::fail_all(const Status& why) {
  for (const auto& lane : sets_.lanes()) completer_.fail_all(lane->table(), why);
}

// -- negotiation sink

void Session::ordered(LaneId, std::uint64_t sequence) {
  timeline_.events().record_order(sequence, steady_now());
}

void Session::execute(LaneId id, std::uint64_t sequence, negotiate::OrderedOperation ordered) {
  if (const auto lane = sets_.lane_of(id)) lane->enqueue(sequence, ordered);
}

void Session::fail_submission(LaneId id, negotiate::FailedSubmission failed) {
  const auto lane = sets_.lane_of(id);
  if (!lane) return;
  lane->table().join_failed(failed.counters);
  completer_.complete(lane->table(), failed.name, failed.status);
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
  // In call order a rank may leave when its calls are over, though its peers have still to come to them. Who
  // waits for it in vain hears so from the fabric.
  if (parts_.call_order) {
    if (by_rank != parts_.rank_info.rank) world_->late_peers().note_left(by_rank);
  } else if (const auto lane = sets_.lane_of(id)) {
    completer_.fail_all(lane->table(),
                        Status::aborted(who + " has called shutdown() or ended, which ends communication for "
                                              "all ranks: give all ranks the same number of steps and the "
                                              "same calls (none under `if hvd.rank() == 0:` alone), or use "
                                              "hvd.join_context"));
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
