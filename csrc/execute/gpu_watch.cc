#include "execute/gpu_watch.h"

#include <utility>

namespace roundelay::execute {
namespace {

constexpr Duration kBetweenLooks = std::chrono::milliseconds(5);

}  // namespace

bool GpuWatch::add(std::unique_ptr<Batch> batch) {
  enqueued_.push_back({std::move(batch), Deadline::never()});
  return !active_.exchange(true, std::memory_order_acq_rel);
}

std::optional<GpuWatch::Failure> GpuWatch::look(TimePoint now, GpuBuffers& buffers) {
  if (now < next_look_) return std::nullopt;
  next_look_ = now + kBetweenLooks;
  Status failed = buffers.fabric().capabilities().device->health();
  while (failed.ok() && !enqueued_.empty()) {
    const Result<bool> done = enqueued_.front().batch->done->reached();
    failed = done.status();
    if (!done.ok() || !*done) break;
    recorder_.record_on_device(*enqueued_.front().batch, buffers.clock());
    enqueued_.pop_front();
  }
  active_.store(!enqueued_.empty(), std::memory_order_release);
  if (enqueued_.empty()) return std::nullopt;
  Enqueued& first = enqueued_.front();
  if (failed.ok() && first.deadline == Deadline::never()) first.deadline = Deadline::at(now + timeout_);
  if (failed.ok() && !first.deadline.passed()) return std::nullopt;
  return Failure{first.batch->sequence, first.batch->describe() + " on a GPU", std::move(failed)};
}

void GpuWatch::clear() {
  enqueued_.clear();
  active_.store(false, std::memory_order_release);
}

}  // namespace roundelay::execute
