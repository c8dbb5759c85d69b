#include "runtime/lane/lane.h"

#include <string>
#include <utility>

namespace roundelay::runtime {

namespace {

std::vector<int> level_sizes(collective::Fabric& fabric) {
  std::vector<int> sizes;
  for (const collective::Fabric* level : fabric.levels()) sizes.push_back(level->group().size());
  return sizes;
}

}  // namespace

Lane::Lane(LaneId id, std::unique_ptr<collective::Fabric> fabric, complete::Completer& completer,
           timeline::Timeline& timeline, const AbortToken& abort, const LaneOptions& options, Faults faults)
    : id_(id),
      completer_(completer),
      abort_(abort),
      faults_(std::move(faults)),
      executor_(std::move(fabric), abort, options),
      group_(executor_.fabric().group()),
      levels_(level_sizes(executor_.fabric())),
      make_region_(executor_.fabric().capabilities().make_region),
      waker_(executor_.fabric(),
             options.schedule_lock ? executor_.fabric().capabilities().announcements : nullptr),
      table_(waker_.announcements()),
      queue_(group_.size(), options.fusion_threshold, table_, completer),
      recorder_(timeline, executor_.fabric().capabilities().work),
      schedule_(table_, queue_, waker_, recorder_, faults_.news),
      gpu_watch_(options.gpu ? options.gpu->sequencer : nullptr, options.patience(true), recorder_) {}

Lane::~Lane() { close_fabric(); }

void Lane::close_fabric() {
  waker_.detach_fabric();
  executor_.close();
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

collective::Nap Lane::idle(collective::Backoff& backoff) {
  const bool waits_for_peers = running_ && !faulted_ && !abort_.raised();
  if (waits_for_peers) return BatchExecutor::idle(*running_, backoff);
  const collective::Nap nap = backoff.next();
  return nap.sleeps() && goes_by_schedule() ? schedule_.driver_nap() : nap;
}

void Lane::wait_for_work(Deadline deadline) {
  if (table_.scheduled()) {
    schedule_.sleep(deadline);
  } else {
    waker_.sleep(queue_, deadline);
  }
}

bool Lane::start_prepared() {
  if (running_ || !prepared_ || !gpu_watch_.may_start(*prepared_)) return false;
  running_ = std::move(prepared_);
  if (const Status started = executor_.start(*running_); !started.ok()) report(*running_, started);
  return true;
}

bool Lane::prepare_next() {
  if (prepared_) return false;
  // A batch on a GPU waits for the running one: in the device's queue its work would come before the rest of
  // the running one's.
  prepared_ = queue_.take(running_ != nullptr);
  if (!prepared_) return false;
  const TimePoint begin = steady_now();
  const Status done = executor_.prepare(*prepared_, recorder_.has_timeline());
  recorder_.record_pack(*prepared_, begin);
  if (!done.ok()) report(*prepared_, done);
  return true;
}

bool Lane::advance_running() {
  if (!running_ || faulted_) return false;
  const Result<Progress> progress = executor_.advance(*running_);
  if (!progress.ok()) {
    report(*running_, progress.status());
    return true;
  }
  if (*progress == Progress::kDone) conclude(std::move(running_));
  return *progress != Progress::kNone;
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
  GpuBuffers* const buffers = executor_.gpu();
  if (buffers == nullptr || faulted_) return;
  if (const auto failure = gpu_watch_.look(steady_now(), *buffers)) report_device(*failure);
}

bool Lane::fail_everything() {
  Batches batches = queue_.take_all();
  if (prepared_) batches.push_front(std::move(prepared_));
  bool on_gpu = gpu_watch_.active();
  if (running_) {
    on_gpu = on_gpu || running_->on_gpu();
    batches.push_front(std::move(running_));
  }
  const bool gives_up = on_gpu && executor_.gpu() != nullptr;
  if (batches.empty() && !gives_up) return false;
  const Status cause = abort_.cause();
  if (gives_up) {
    // Lets streams that wait for a peer go on: a thread that synchronizes with the device must not wait for
    // ever.
    executor_.gpu()->fabric().capabilities().device->give_up(cause);
    gpu_watch_.clear();
  }
  for (const auto& batch : batches) {
    executor_.abandon(*batch);
    release(*batch, cause);
  }
  queue_.forget(batches.size());
  return true;
}

// Reports an error of a batch to the control plane, the first one only.
void Lane::report(const Batch& batch, const Status& why) {
  if (std::exchange(faulted_, true) || abort_.raised()) return;
  const int peer = BatchExecutor::waiting_for(batch);
  if (BatchExecutor::late(batch)) {
    const auto waited = std::chrono::duration_cast<std::chrono::seconds>(steady_now() - batch.started);
    const std::string size = std::to_string(batch.bytes()) + " bytes, " + std::to_string(waited.count());
    faults_.stuck({id_, batch.sequence, peer,
                   batch.describe() + " (" + size + " s in it; ROUNDELAY_PROGRESS_TIMEOUT)"});
    return;
  }
  const int self = group_.world_rank();
  faults_.fault({peer >= 0 ? peer : self, "rank " + std::to_string(self) + " failed inside " +
                                              batch.describe() + " (" + std::to_string(batch.bytes()) +
                                              " bytes): " + why.message()});
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

}  // namespace roundelay::runtime
