#include "runtime/session/session.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/log.h"
#include "collective/select.h"
#include "runtime/lane/operations/operations.h"
#include "wire/describe.h"

namespace roundelay::runtime {
namespace {

constexpr Duration kClosePatience = std::chrono::seconds(2);

negotiate::CoordinatorOptions coordinator_options(const Config& config, int ranks) {
  negotiate::CoordinatorOptions options;
  const auto theta = static_cast<std::size_t>(config.theta);
  options.plan.fusion_threshold_bytes = fusion_threshold(config, ranks);
  options.plan.theta_bytes = theta;
  options.fire = {theta, config.cycle_time};
  options.cache_capacity = static_cast<std::size_t>(config.cache_capacity);
  options.stall_warning = config.stall_check_disable ? Duration{0} : config.stall_check_time;
  options.stall_abort = config.stall_shutdown_time;
  options.schedule_lock = config.schedule_lock;
  return options;
}

}  // namespace

std::size_t fusion_threshold(const Config& config, int ranks) {
  // What is fused with what depends on arrival, and in large groups the sums on what is fused.
  if (config.deterministic && ranks > collective::kOnePlaceMembers) return 0;
  return static_cast<std::size_t>(config.fusion_threshold);
}

Session::Session(SessionParts parts)
    : parts_(std::move(parts)),
      sequencer_([this] { engine_.wake_lanes(); }),
      timeline_(parts_.rank_info.rank),
      completer_(handles_, [this](const submit::Entry& entry, TimePoint now) { observe(entry, now); }),
      negotiator_(*parts_.channel, parts_.rank_info.rank, parts_.rank_info.size,
                  coordinator_options(parts_.config, parts_.rank_info.size), *this),
      sets_(parts_.rank_info.rank),
      world_(make_lane(LaneId{}, std::move(parts_.fabric))),
      engine_(*parts_.channel, negotiator_, handles_,
              {bootstrap::outnumber_cores(parts_.rank_info.local_size), !world_->caller_may_drive(),
               [this](TimePoint now) { return housekeeping(now).sooner(inquiry_.look(now)); }}),
      inquiry_(parts_.whereabouts,
               [this](int by_rank, std::string text) {
                 negotiator_.answer_state(by_rank, std::move(text));
                 engine_.wake();
               }),
      file_(parts_.timeline_file ? std::move(parts_.timeline_file)
                                 : std::make_unique<timeline::TimelineFile>()) {
  const Group& group = world_->group();
  sets_.add_lane(world_);
  sets_.publish({0, group.ranks, world_, false});
  {
    MutexLock lock(mutex_);
    open_.insert(world_->id());
  }
  negotiator_.know(Neighbours(std::move(parts_.neighbours)));
  negotiator_.add_lane(world_->id(), group, world_->table());
  engine_.add_lane(world_);
  negotiator_.measure_clock(steady_now());
  if (parts_.rank_info.size > 1) engine_.start();
  if (file_->is_open()) record_everywhere(parts_.config.timeline_mark_cycles);
}

Session::~Session() { shutdown(); }

Result<submit::Handle> Session::submit(Submission submission) {
  Result<std::shared_ptr<Lane>> lane = sets_.lane_for_use(submission.process_set);
  if (!lane.ok()) return lane.status();
  const bool blocking = submission.blocking;
  submit::Entry entry{std::move(submission)};
  entry.times.submitted = steady_now();
  std::string wrong = wrong_with(entry, (*lane)->group());
  if (wrong.empty() && entry.request.device == DeviceType::kGpu) wrong = wrong_gpu(entry.gpu);
  if (wrong.empty()) return submit_to(**lane, std::move(entry), blocking);
  entry.request.error = wire::describe(entry.request) + ": " + wrong;
  const Status status = Status::invalid(entry.request.error);
  if (static_cast<int>(entry.request.reduce_op) >= kReduceOpCount) entry.request.reduce_op = ReduceOp::kSum;
  submit_error_to(**lane, std::move(entry.request));
  return status;
}

// A process works on one GPU, that of its first operation.
std::string Session::wrong_gpu(int index) {
  if (parts_.gpu.runtime == nullptr) {
    return "the tensor is on a GPU, but this build has no CUDA part; move it with cpu(), or build where nvcc "
           "is";
  }
  int ours = -1;
  if (gpu_.compare_exchange_strong(ours, index) || ours == index) return {};
  return "the tensor is on GPU " + std::to_string(index) + ", but this process works on GPU " +
         std::to_string(ours) + "; call torch.cuda.set_device(hvd.local_rank()) before tensors are made";
}

Result<submit::Handle> Session::submit_to(Lane& lane, submit::Entry entry, bool blocking) {
  engine_.start();
  // A blocking caller looks itself: its peers, who may wait for this very call, need not wake the lane's
  // thread.
  std::optional<ScheduleWatch> watch;
  if (blocking) watch.emplace(lane.schedule());
  Result<submit::Handle> handle = lane.table().add(std::move(entry), handles_);
  if (watch && handle.ok()) watch->leave_to_wait();
  if (handle.ok() && lane.id() != world_->id()) sets_.remember(*handle, lane.id());
  if (lane.table().take_unwatched()) lane.wake();
  if (lane.goes_by_schedule()) return handle;  // announced
  lane.note_news();
  // Who waits at once negotiates itself, or Engine::wait() wakes somebody. Nobody waits for a call that was
  // refused, but the peers are to be told.
  if (!blocking || !handle.ok()) engine_.wake();
  return handle;
}

Result<RegionPtr> Session::make_region(ProcessSetId process_set, std::uint64_t key, std::size_t bytes,
                                       int gpu) {
  const Result<std::shared_ptr<Lane>> lane = sets_.lane_for_use(process_set);
  if (!lane.ok()) return lane.status();
  if (gpu < 0) return (*lane)->make_region(key, bytes);
  const std::string wrong = wrong_gpu(gpu);
  if (!wrong.empty()) return Status::invalid(wrong);
  return make_gpu_region(*parts_.gpu.runtime, gpu, key, bytes);
}

void Session::submit_error(ProcessSetId process_set, wire::Request request) {
  const Result<std::shared_ptr<Lane>> lane = sets_.lane_for_use(process_set);
  if (lane.ok()) submit_error_to(**lane, std::move(request));
}

void Session::submit_error_to(Lane& lane, wire::Request request) {
  engine_.start();
  lane.table().add_error(std::move(request));
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
    const LaneId id = sets_.lane_of_handle(handle);
    const auto lane = sets_.lane_of(id);
    if (!lane || !lane->table().scheduled()) {
      negotiator_.request_flush(id);
    } else if (lane->table().waited_for(handle)) {
      lane->note_news();
    }
    if (!engine_.wait(handle, id, deadline)) return std::nullopt;
  }
  sets_.forget(handle);
  return handles_.take(handle);
}

bool Session::anything_to_flush() const {
  const auto lanes = sets_.lanes();
  return std::any_of(lanes.begin(), lanes.end(), [](const auto& lane) {
    return !lane->goes_by_schedule() && lane->table().in_flight() > 0;
  });
}

void Session::flush() {
  if (!anything_to_flush()) return;
  negotiator_.request_flush();
  engine_.wake();
}

std::map<std::string, std::int64_t> Session::stats() const {
  LaneCounters lane;
  sets_.add_counters(lane);
  const ControlCounters& control = negotiator_.counters();
  const submit::Exposure::Times time = handles_.exposure();
  return {{"operations", lane.operations},
          {"tensors", lane.tensors},
          {"fused_tensors", lane.fused_tensors},
          {"bytes", lane.bytes},
          {"bytes_staged", lane.bytes_staged},
          {"sleeps", lane.sleeps},
          {"wakes", lane.wakes},
          {"locked_operations", lane.locked_operations},
          {"gpu_operations", lane.gpu_operations},
          {"schedule_locks", control.locks},
          {"schedule_unlocks", control.unlocks},
          {"reports_sent", control.reports},
          {"orders_given", control.orders},
          {"messages_sent", control.messages_sent},
          {"message_bytes", control.message_bytes},
          {"wakeups_sent", parts_.channel->wakeups_sent()},
          {"cached_requests", control.cached_requests},
          {"full_requests", control.full_requests},
          {"under_way_ns", time.under_way.count()},
          {"exposed_ns", time.exposed.count()}};
}

void Session::fail(const std::string& why) {
  if (parts_.rank_info.size == 1) return;
  report_fault(why);
  static_cast<void>(wait_until_closed(Deadline::after(kClosePatience)));
}

void Session::report_fault(const std::string& why) {
  negotiator_.report_fault({parts_.rank_info.rank, why});
  engine_.wake();
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
        parts_.backend->poison(closed.message());  // finalising would wait for the coordinator
    }
    // What was ordered before the last order is finished by all ranks, or fails by its own deadline.
    while (any_work() && !abort_.raised()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    collect_last_chunks();
  }
  fail_all(Status::aborted("this rank has called shutdown()"));
  {
    MutexLock lock(changing_);  // who adds or removes a process set has been told
    engine_.stop();
  }
  parts_.channel->close(Deadline::after(kClosePatience));
  for (const auto& lane : sets_.lanes()) fail_what_is_left(*lane);
  MutexLock lock(mutex_);
  static_cast<void>(file_->close());
}

bool Session::any_work() const {
  const auto lanes = sets_.lanes();
  return std::any_of(lanes.begin(), lanes.end(),
                     [](const auto& lane) { return lane->has_work() || lane->watches_device(); });
}

void Session::fail_all(const Status& why) {
  for (const auto& lane : sets_.lanes()) completer_.fail_all(lane->table(), why);
}

// After an abort: entries that no lane thread has failed yet. A caller may still be at it.
void Session::fail_what_is_left(Lane& lane) {
  BackgroundHold hold(lane.token());
  while (lane.has_work() && lane.step()) {
  }
}

Status Session::wait_until_closed(Deadline deadline) {
  MutexLock lock(mutex_);
  while (!open_.empty() && !over_ && !deadline.passed()) changed_.wait_until(mutex_, deadline);
  return open_.empty() || over_ ? Status{}
                                : Status::aborted("no coordinator answered this rank's shutdown() in time");
}

}  // namespace roundelay::runtime
