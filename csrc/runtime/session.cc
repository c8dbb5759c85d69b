#include "runtime/session.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/log.h"
#include "runtime/operations/operations.h"

namespace roundelay::runtime {
namespace {

constexpr Duration kClosePatience = std::chrono::seconds(2);

negotiate::CoordinatorOptions coordinator_options(const Config& config) {
  negotiate::CoordinatorOptions options;
  const auto threshold = static_cast<std::size_t>(config.fusion_threshold);
  const auto theta = static_cast<std::size_t>(config.theta);
  // Deterministic: what is fused with what would depend on arrival, so nothing is.
  options.plan.fusion_threshold_bytes = config.deterministic ? 0 : threshold;
  options.plan.theta_bytes = theta;
  options.fire = {theta, config.cycle_time};
  options.cache_capacity = static_cast<std::size_t>(config.cache_capacity);
  options.stall_warning = config.stall_check_disable ? Duration{0} : config.stall_check_time;
  options.stall_abort = config.stall_shutdown_time;
  return options;
}

bool crowded(const Placement& placement) {
  return static_cast<unsigned>(placement.local_size) > std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace

Session::Session(SessionParts parts)
    : parts_(std::move(parts)),
      timeline_(parts_.placement.rank),
      completer_(handles_, [this](const submit::Entry& entry) { observe(entry); }),
      negotiator_(*parts_.channel, parts_.placement.rank, parts_.placement.size,
                  coordinator_options(parts_.config), *this),
      world_(std::make_unique<Lane>(LaneId{}, std::move(parts_.fabric), completer_, timeline_, abort_,
                                    LaneOptions{parts_.config.progress_timeout,
                                                static_cast<std::size_t>(parts_.config.fusion_threshold)},
                                    Lane::Faults{[this](wire::Stuck stuck) {
                                                   negotiator_.report_stuck(std::move(stuck));
                                                   parts_.channel->wake();
                                                 },
                                                 [this](wire::Abort fault) {
                                                   negotiator_.report_fault(std::move(fault));
                                                   parts_.channel->wake();
                                                 }})),
      engine_(*parts_.channel, negotiator_, {world_.get()}, handles_,
              {crowded(parts_.placement), [this](TimePoint now) { return housekeeping(now); }}),
      file_(parts_.timeline_file ? std::move(parts_.timeline_file) : std::make_unique<TimelineFile>()) {
  negotiator_.add_lane(world_->id(), world_->fabric().group(), world_->table());
  negotiator_.measure_clock(steady_now());
  if (parts_.placement.size > 1) engine_.start();
  if (file_->is_open()) record_everywhere(parts_.config.timeline_mark_cycles);
}

Session::~Session() { shutdown(); }

Lane* Session::lane_of(LaneId id) { return id == world_->id() ? world_.get() : nullptr; }

Result<submit::Handle> Session::submit(Submission submission) {
  Lane* lane = lane_of(submission.lane);
  if (lane == nullptr)
    return Status::invalid("process set " + std::to_string(submission.lane.process_set) + " is unknown");
  submit::Entry entry;
  entry.count = 1;
  for (const std::int64_t extent : submission.request.shape) entry.count *= static_cast<std::size_t>(extent);
  entry.input = submission.input;
  entry.output = submission.output;
  entry.stamps.submitted = steady_now();
  entry.request = std::move(submission.request);
  std::string wrong = steps_of(entry.request.operation).check(entry.request, lane->fabric().group());
  if (!wrong.empty()) {
    const std::string subject = entry.request.name.empty() ? "" : " of '" + entry.request.name + "'";
    entry.request.error = std::string(name_of(entry.request.operation)) + subject + ": " + wrong;
    const Status status = Status::invalid(entry.request.error);
    submit_error(submission.lane, std::move(entry.request));
    return status;
  }
  engine_.start();
  Result<submit::Handle> handle = lane->table().add(std::move(entry), handles_);
  engine_.wake();
  return handle;
}

void Session::submit_error(LaneId id, wire::Request request) {
  Lane* lane = lane_of(id);
  if (lane == nullptr) return;
  engine_.start();
  lane->table().add_error(std::move(request));
  engine_.wake();
}

Result<bool> Session::poll(submit::Handle handle) {
  const auto done = handles_.done(handle);
  if (!done)
    return Status::invalid("handle " + std::to_string(handle) + " was not created or has been cleared");
  return *done;
}

std::optional<Status> Session::wait(submit::Handle handle, Deadline deadline) {
  const auto known = handles_.done(handle);
  if (!known)
    return Status::invalid("handle " + std::to_string(handle) + " was not created or has been cleared");
  if (!*known) {
    negotiator_.request_flush();
    if (!engine_.wait(handle, deadline)) return std::nullopt;
  }
  return handles_.take(handle);
}

void Session::flush() {
  negotiator_.request_flush();
  engine_.wake();
}

std::map<std::string, std::int64_t> Session::stats() const {
  const LaneCounters& lane = world_->counters();
  const ControlCounters& control = negotiator_.counters();
  return {{"operations", lane.operations},
          {"tensors", lane.tensors},
          {"fused_tensors", lane.fused_tensors},
          {"bytes", lane.bytes},
          {"reports_sent", control.reports},
          {"orders_given", control.orders},
          {"messages_sent", control.messages_sent},
          {"message_bytes", control.message_bytes},
          {"cached_requests", control.cached_requests},
          {"full_requests", control.full_requests}};
}

void Session::fail(const std::string& why) {
  if (parts_.placement.size == 1) return;
  negotiator_.report_fault({parts_.placement.rank, why});
  engine_.wake();
  static_cast<void>(wait_until_closed(Deadline::after(kClosePatience)));
}

void Session::shutdown() {
  if (stopped_.exchange(true)) return;
  if (!abort_.raised()) {
    negotiator_.request_leave();
    engine_.start();
    engine_.wake();
    const Status closed = wait_until_closed(Deadline::after(parts_.config.progress_timeout));
    if (!closed.ok()) {
      log(LogLevel::kWarning, closed.message());
      if (parts_.backend != nullptr)
        parts_.backend->poison(closed.message());  // finalising would wait for rank 0
    }
    // What was ordered before the last order is finished by all ranks, or fails by its own deadline.
    while (world_->has_work() && !abort_.raised()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    collect_last_chunks();
  }
  completer_.fail_all(world_->table(), Status::aborted("this rank has called shutdown()"));
  engine_.stop();
  parts_.channel->close(Deadline::after(kClosePatience));
  {
    // After an abort: entries that no lane thread has failed yet. A caller may still be at it.
    BackgroundHold hold(world_->token());
    while (world_->has_work() && world_->step()) {
    }
  }
  MutexLock lock(mutex_);
  static_cast<void>(file_->close());
}

Status Session::wait_until_closed(Deadline deadline) {
  MutexLock lock(mutex_);
  while (!closed_ && !deadline.passed()) changed_.wait_until(mutex_, deadline);
  return closed_ ? Status{} : Status::aborted("rank 0 did not answer this rank's shutdown() in time");
}

// --- what the control plane decides ---

void Session::execute(LaneId id, std::uint64_t sequence, std::vector<std::string> names) {
  timeline_.record_order(sequence, steady_now());
  if (Lane* lane = lane_of(id)) lane->enqueue(sequence, names);
}

void Session::settle(LaneId id, const std::string& name, Status status) {
  if (Lane* lane = lane_of(id)) completer_.complete(lane->table(), name, status);
}

void Session::shut_down(LaneId id, int by_rank) {
  const std::string who = by_rank == parts_.placement.rank ? "this rank" : "rank " + std::to_string(by_rank);
  if (Lane* lane = lane_of(id)) {
    completer_.fail_all(lane->table(), Status::aborted(who + " has called shutdown() or ended, which ends "
                                                             "communication for all ranks"));
  }
  ship_timeline(true);
  engine_.wake();
  MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void Session::abort(const Status& cause) {
  if (!abort_.raise(cause)) return;
  if (parts_.backend != nullptr) parts_.backend->poison(cause.message());
  completer_.fail_all(world_->table(), cause);
  engine_.rouse_lanes();
  MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void Session::ready(LaneId, const negotiate::ReadyNote& note) {
  timeline_.record_ready(note.name, note.last_rank, note.waited, steady_now());
}

}  // namespace roundelay::runtime
