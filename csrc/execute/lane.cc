#include "execute/lane.h"

#include <string>
#include <utility>

#include "gpu/gpu_levels.h"

namespace roundelay::execute {

namespace {

std::shared_ptr<lock::Announcements> announcements_of(
    const collective::Fabric& fabric, const std::shared_ptr<lock::Announcements>& between_nodes) {
  return between_nodes ? between_nodes : fabric.capabilities().announcements;
}

}  // namespace

Lane::Lane(LaneId id, LaneFabrics fabrics, Completer& completer, timeline::Timeline& timeline,
           const AbortToken& abort, const LaneOptions& options, Faults faults)
    : id_(id),
      completer_(completer),
      abort_(abort),
      faults_(std::move(faults)),
      late_peers_(options.stall_warning),
      executors_(std::move(fabrics.all), abort, options),
      group_(fabric().group()),
      level_sizes_(collective::level_sizes(executors_.first().fabric())),
      gpu_level_sizes_(options.gpu
                           ? gpu::gpu_level_sizes(executors_.first().fabric(), options.gpu->fabric.wish)
                           : std::vector<int>()),
      make_region_(fabric().capabilities().make_region),
      waker_(executors_.wakers(),
             options.schedule_lock ? announcements_of(fabric(), fabrics.announcements) : nullptr),
      table_(waker_.announcements(), group_.ranks),
      queue_(group_.ranks, options.fusion_threshold, table_, completer),
      recorder_(timeline, executors_.counters(), group_.index == 0),
      schedule_(table_, queue_, waker_, recorder_,
                {faults_.wake_negotiator, [this](const Status& why) { report_schedule(why); }}),
      gpu_watch_(options.gpu ? options.gpu->sequencer : nullptr, options.call_timeout(true), recorder_) {}

Lane::~Lane() {
  // There are batches only if nobody has run the lane to the end of its work.
  if (prepared_) executors_.abandon(*prepared_);
  for (const auto& batch : executors_.take_running()) executors_.abandon(*batch);
  close_fabrics();
}

void Lane::close_fabrics() {
  waker_.detach_fabrics();
  executors_.close();
}

bool Lane::step() {
  if (abort_.raised()) return fail_everything();
  if (faulted_) return false;
  bool moved = schedule_.enter();
  moved = start_prepared() || moved;
  moved = prepare_next() || moved;
  moved = advance_running() || moved;
  if (gpu_watch_.active()) look_at_device();
  return moved;
}

Nap Lane::idle(Backoff& backoff) {
  const bool waits_for_peers = !executors_.idle() && !faulted_ && !abort_.raised();
  if (waits_for_peers) return executors_.nap(backoff);
  const Nap nap = backoff.next();
  return nap.sleeps() && goes_by_schedule() ? schedule_.driver_nap() : nap;
}

void Lane::wait_for_work(Deadline deadline) {
  if (table_.scheduled()) {
    schedule_.sleep(token_, deadline);
  } else {
    waker_.sleep(queue_, token_, deadline);
  }
}

bool Lane::start_prepared() {
  if (!prepared_ || !executors_.may_start(*prepared_) || !gpu_watch_.may_start(*prepared_)) return false;
  Batch& batch = *prepared_;
  const Status started = executors_.start(std::move(prepared_));
  if (!started.ok()) {
    report(batch, started);
  } else if (batch.ticket && executors_.first().device_never_waits(batch)) {
    // Kernels of other lanes cannot wait for this batch, whatever the order on the peers.
    gpu_watch_.leave_ticket(batch);
  }
  return true;
}

bool Lane::prepare_next() {
  if (prepared_) return false;
  // A batch on a GPU waits for those under way: in the device's queue its work would come before the rest of
  // theirs.
  prepared_ = queue_.pop(!executors_.idle());
  if (!prepared_) return false;
  prepared_->recorder = recorder_.span_recorder(*prepared_);
  const TimePoint begin = steady_now();
  const Status done = executors_.prepare(*prepared_, recorder_.has_timeline());
  recorder_.record_pack(*prepared_, begin);
  prepared_->observer = recorder_.level_observer(*prepared_);
  if (!done.ok()) report(*prepared_, done);
  return true;
}

bool Lane::advance_running() {
  bool moved = false;
  for (const auto& executor : executors_.all()) {
    if (!executor->running || faulted_) continue;
    const Result<Progress> progress = executor->batches.advance(*executor->running);
    if (!progress.ok()) report(*executor->running, progress.status());
    if (progress.ok() && *progress == Progress::kDone) conclude(std::move(executor->running));
    if (executor->running && !faulted_) {
      if (const Status late = late_peers_.look(*executor->running); !late.ok())
        report(*executor->running, late);
    }
    moved = moved || !progress.ok() || *progress != Progress::kNone;
  }
  return moved;
}

void Lane::conclude(std::unique_ptr<Batch> batch) {
  gpu_watch_.leave_ticket(*batch);
  recorder_.record(*batch);
  release(*batch, Status{});
  if (batch->on_gpu() && gpu_watch_.add(std::move(batch))) waker_.wake();
  queue_.forget(1);
}

// Takes the batch off its entries. An entry is complete when its last batch is over.
void Lane::release(Batch& batch, const Status& outcome) {
  for (auto& entry : batch.entries) {
    if (--entry->unfinished == 0) completer_.complete(table_, *entry, outcome);
  }
}

void Lane::look_at_device() {
  GpuBuffers* const buffers = executors_.first().gpu();
  if (buffers == nullptr || faulted_) return;
  if (const auto failure = gpu_watch_.look(steady_now(), *buffers)) report_device(*failure);
}

bool Lane::fail_everything() {
  Batches batches = executors_.take_running();
  const bool on_gpu = gpu_watch_.active() || (!batches.empty() && batches.front()->on_gpu());
  if (prepared_) batches.push_back(std::move(prepared_));
  for (auto& queued : queue_.take_all()) batches.push_back(std::move(queued));
  GpuBuffers* const gpu = on_gpu ? executors_.first().gpu() : nullptr;
  if (batches.empty() && gpu == nullptr) return false;
  const Status cause = abort_.cause();
  if (gpu != nullptr) {
    // Lets streams that wait for a peer go on: a thread that synchronizes with the device must not wait for
    // ever.
    gpu->fabric().capabilities().device->give_up(cause);
    gpu_watch_.clear();
  }
  for (const auto& batch : batches) {
    executors_.abandon(*batch);
    release(*batch, cause);
  }
  queue_.forget(batches.size());
  return true;
}

// Reports an error of a batch to the control plane, the first one only.
void Lane::report(const Batch& batch, const Status& why) {
  if (std::exchange(faulted_, true) || abort_.raised()) return;
  const int peer = batch.waiting_for();
  const int self = group_.world_rank();
  if (batch.late() && batch.whole_call() != nullptr) {
    faults_.fault({peer, LatePeers::past_its_time(batch, self)});
    return;
  }
  if (batch.late()) {
    const std::string size =
        std::to_string(batch.bytes()) + " bytes, " + seconds_text(steady_now() - batch.started);
    faults_.stuck(
        {id_, batch.sequence, peer, batch.describe() + " (" + size + " in it; ROUNDELAY_PROGRESS_TIMEOUT)"});
    return;
  }
  faults_.fault({peer >= 0 ? peer : self,
                 "rank " + std::to_string(self) + " failed inside " + batch.describe() + " (" +
                     std::to_string(batch.bytes()) + " bytes): " + why.message(),
                 why.code() == StatusCode::kMismatch});
}

// Reports that members do not agree about a position of the schedule.
void Lane::report_schedule(const Status& why) {
  const int self = group_.world_rank();
  faults_.fault({self, "rank " + std::to_string(self) + ": " + why.message()});
}

void Lane::report_device(const GpuWatch::Failure& failure) {
  faulted_ = true;
  const int self = group_.world_rank();
  if (failure.cause.ok()) {
    faults_.stuck({id_, failure.sequence, -1, failure.batch + " (ROUNDELAY_PROGRESS_TIMEOUT times 10)"});
  } else {
    faults_.fault({self, "rank " + std::to_string(self) + " failed inside " + failure.batch + ": " +
                             failure.cause.message()});
  }
}

}  // namespace roundelay::execute
