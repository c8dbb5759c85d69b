#include "runtime/lane/batch_executor.h"

#include <algorithm>
#include <utility>

#include "base/leak.h"
#include "runtime/lane/operations/operations.h"

namespace roundelay::runtime {
namespace {

constexpr double kSlowLinkBytesPerSecond =
    10e6;  // a call may take the time of this rate besides its patience

Deadline progress_deadline(TimePoint now, Duration patience, std::size_t bytes) {
  const std::chrono::duration<double> transfer(static_cast<double>(bytes) / kSlowLinkBytesPerSecond);
  return Deadline::at(now + patience + std::chrono::duration_cast<Duration>(transfer));
}

}  // namespace

BatchExecutor::BatchExecutor(std::unique_ptr<collective::Fabric> fabric, const AbortToken& abort,
                             LaneOptions options)
    : abort_(abort),
      options_(std::move(options)),
      fabric_(std::move(fabric)),
      host_(std::make_unique<HostBuffers>(*fabric_, options_.fusion_threshold)) {
  if (!options_.gpu) return;
  gpu_ = std::make_unique<GpuBuffers>(options_.gpu->parts, *fabric_, options_.gpu->fabric);
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

Status BatchExecutor::prepare(Batch& batch, bool timed) {
  if (batch.on_gpu()) {
    ROUNDELAY_RETURN_IF_ERROR(gpu_->take_in(batch));
    if (timed) batch.device_began = gpu_->mark_time();
  }
  return batch.steps->prepare(batch, buffers_of(batch));
}

Status BatchExecutor::start(Batch& batch) {
  batch.started = steady_now();
  for (const auto& entry : batch.entries) {
    if (entry->times.started == TimePoint{}) entry->times.started = batch.started;
  }
  return call(batch);
}

Status BatchExecutor::call(Batch& batch) {
  const std::size_t bytes = std::max(collective::result_bytes(batch.call), batch.bytes());
  collective::CallOptions& options = collective::options_of(batch.call);
  options.deadline = progress_deadline(steady_now(), options_.patience(batch.on_gpu()), bytes);
  options.abort = &abort_;
  DeviceBuffers& buffers = options.stream == nullptr ? *host_ : buffers_of(batch);
  auto pending = buffers.fabric().start(batch.call);
  if (!pending.ok()) return pending.status();
  batch.pending = std::move(pending).value();
  return {};
}

Result<Progress> BatchExecutor::advance(Batch& batch) {
  const Result<bool> over = batch.pending->test();
  if (!over.ok()) return over.status();
  if (!*over) return Progress::kNone;
  if (batch.steps->next != nullptr) {
    const Result<bool> more = batch.steps->next(batch, buffers_of(batch));
    if (!more.ok()) return more.status();
    if (*more) {
      ROUNDELAY_RETURN_IF_ERROR(call(batch));
      return Progress::kMoved;
    }
  }
  batch.reduced = steady_now();
  ROUNDELAY_RETURN_IF_ERROR(finish(batch));
  return Progress::kDone;
}

Status BatchExecutor::finish(Batch& batch) {
  if (batch.steps->finish != nullptr) {
    ROUNDELAY_RETURN_IF_ERROR(batch.steps->finish(batch, buffers_of(batch)));
  }
  return batch.on_gpu() ? mark_end(batch) : Status{};
}

// Marks the event after which the batch is complete, and gives it to the entries.
Status BatchExecutor::mark_end(Batch& batch) {
  if (batch.device_began.point) batch.device_ended = gpu_->mark_time();
  Result<GpuEventPtr> there = gpu_->mark();
  if (!there.ok()) return there.status();
  batch.done = std::move(there).value();
  for (const auto& entry : batch.entries) {
    if (entry->results != nullptr) entry->results->set_done(batch.done);
  }
  return {};
}

void BatchExecutor::abandon(Batch& batch) {
  // One more test lets the call see the abort word and give up its transfers.
  if (batch.pending) static_cast<void>(batch.pending->test());
  batch.pending.reset();
  if (!fabric_->poisoned()) return;
  leak(std::move(batch.sent));
  leak(std::move(batch.received));
}

}  // namespace roundelay::runtime
