#include "execute/batch_executor.h"

#include <algorithm>
#include <utility>

#include "base/leak.h"
#include "collective/whole_call.h"
#include "execute/operations/operations.h"

namespace roundelay::execute {
namespace {

constexpr double kSlowLinkBytesPerSecond = 10e6;  // a call may take the time of this rate besides its timeout

Deadline progress_deadline(TimePoint now, Duration timeout, std::size_t bytes) {
  const std::chrono::duration<double> transfer(static_cast<double>(bytes) / kSlowLinkBytesPerSecond);
  return Deadline::at(now + timeout + std::chrono::duration_cast<Duration>(transfer));
}

}  // namespace

BatchExecutor::BatchExecutor(std::unique_ptr<collective::Fabric> fabric, const AbortToken& abort,
                             LaneOptions options)
    : abort_(abort),
      options_(std::move(options)),
      fabric_(std::move(fabric)),
      host_(std::make_unique<HostBuffers>(*fabric_, frames_, options_.fusion_threshold)) {
  if (!options_.gpu) return;
  gpu_ = std::make_unique<GpuBuffers>(options_.gpu->parts, *fabric_, frames_, options_.gpu->fabric);
}

void BatchExecutor::close() {
  if (!fabric_) return;
  if (fabric_->poisoned()) host_->leak_buffers();
  gpu_.reset();
  fabric_.reset();
}

DeviceBuffers& BatchExecutor::buffers_of(const Batch& batch) const {
  if (batch.on_gpu()) return *gpu_;
  return *host_;
}

collective::Task BatchExecutor::task_of(Batch& batch) const {
  // A technique does not apply while a rank has joined, or before it can know the fabric's levels: all
  // members then reduce densely.
  DeviceBuffers& buffers = buffers_of(batch);
  if (batch.technique() != nullptr && buffers.knows_levels()) return run_technique(buffers, batch);
  return batch.steps->run(buffers, batch);
}

Status BatchExecutor::prepare(Batch& batch, bool timed) {
  if (batch.on_gpu()) {
    ROUNDELAY_RETURN_IF_ERROR(gpu_->take_in(batch));
    if (timed) batch.device_began = gpu_->mark_time();
  }
  batch.task = task_of(batch);
  batch.task.resume();
  return batch.task.done() ? batch.task.status() : Status{};
}

Status BatchExecutor::start(Batch& batch) {
  batch.started = steady_now();
  for (const auto& entry : batch.entries) {
    if (entry->times.started == TimePoint{}) entry->times.started = batch.started;
  }
  if (!batch.task.done()) return call(batch);
  batch.reduced = batch.started;  // the task needs no call
  return {};
}

Status BatchExecutor::call(Batch& batch) {
  const collective::Task::Awaited& awaited = batch.task.awaited();
  const std::size_t bytes = std::max(collective::result_bytes(*awaited.call), batch.bytes());
  batch.called = steady_now();
  collective::CallOptions& options = collective::options_of(*awaited.call);
  const collective::WholeCall* const whole = batch.whole_call();
  const Duration timeout = whole ? whole->timeout : options_.call_timeout(batch.on_gpu());
  if (whole != nullptr) options.mark = collective::options_of(whole->call).mark;
  options.deadline = progress_deadline(batch.called, timeout, bytes * options_.calls_at_once);
  options.abort = &abort_;
  options.observer = batch.observer;
  auto pending = awaited.fabric->start(*awaited.call);
  if (!pending.ok()) return pending.status();
  batch.pending = std::move(pending).value();
  batch.called_bytes += collective::given_bytes(*awaited.call, awaited.fabric->group().index);
  return {};
}

Result<Progress> BatchExecutor::advance(Batch& batch) {
  if (batch.pending) {
    const Result<bool> over = batch.pending->test();
    if (!over.ok()) return over.status();
    if (!*over) return Progress::kNone;
    // The first call on a GPU chooses its fabric on the way, so that the name is known only now.
    batch.algorithm = batch.pending->algorithm();
    if (batch.algorithm.empty()) batch.algorithm = batch.task.awaited().fabric->name();
    batch.pending.reset();
    batch.reduced = steady_now();
    batch.task.resume();
  }
  if (!batch.task.done()) {
    ROUNDELAY_RETURN_IF_ERROR(call(batch));
    return Progress::kMoved;
  }
  ROUNDELAY_RETURN_IF_ERROR(batch.task.status());
  batch.task = {};
  if (batch.on_gpu()) ROUNDELAY_RETURN_IF_ERROR(mark_end(batch));
  return Progress::kDone;
}

// Marks the event after which the batch is complete, and gives it to the entries.
Status BatchExecutor::mark_end(Batch& batch) {
  if (batch.device_began.point) batch.device_ended = gpu_->mark_time();
  Result<GpuEventPtr> mark = gpu_->mark();
  if (!mark.ok()) return mark.status();
  batch.done = std::move(mark).value();
  for (const auto& entry : batch.entries) {
    if (entry->results != nullptr) entry->results->set_done(batch.done);
  }
  return {};
}

void BatchExecutor::abandon(Batch& batch) {
  const bool called = batch.pending != nullptr;
  // One more test lets the call see the abort token and give up its transfers.
  if (called) static_cast<void>(batch.pending->test());
  batch.pending.reset();
  // The medium may still write to the variables of the task: its whole frame is leaked.
  if (called && buffers_of(batch).fabric().poisoned()) leak(std::move(batch.task));
  batch.task = {};
}

}  // namespace roundelay::execute
