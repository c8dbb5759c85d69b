// A lane's work on a GPU: done for the host when it is enqueued, and looked after until the device has done
// it.
#include <utility>

#include "runtime/lane/lane.h"

namespace roundelay::runtime {
namespace {

constexpr Duration kBetweenLooks = std::chrono::milliseconds(5);
// The device also does what was enqueued before, here and at the peers, which is nobody's fault.
constexpr int kDeviceTimeouts = 10;

}  // namespace

// Two collectives on one GPU would wait for each other, were they enqueued in different orders.
bool Lane::may_go(const Batch& batch) const {
  return !batch.ticket || !options_.gpu || options_.gpu->sequencer->may_go(batch.ticket->previous);
}

void Lane::leave_ticket(const Batch& batch) {
  if (batch.ticket && batch.ends_tickets && options_.gpu) options_.gpu->sequencer->gone(batch.ticket->number);
}

Duration Lane::patience(const Batch& batch) const {
  return options_.progress_timeout * (batch.on_gpu() ? kDeviceTimeouts : 1);
}

Status Lane::hand_over(Batch& batch) {
  if (batch.device_began.point) batch.device_ended = gpu_->mark_time();
  Result<GpuEventPtr> there = gpu_->mark();
  if (!there.ok()) return there.status();
  batch.done = std::move(there).value();
  for (const auto& entry : batch.entries) {
    if (entry->results != nullptr) entry->results->set_done(batch.done);
  }
  return {};
}

void Lane::watch(std::unique_ptr<Batch> batch) {
  batch->pending.reset();
  enqueued_.push_back({std::move(batch), Deadline::never()});
  const bool watched = watches_device_.exchange(true, std::memory_order_acq_rel);
  if (!watched) wake();  // the lane's thread sleeps without an end
}

void Lane::look_at_device() {
  const TimePoint now = steady_now();
  if (now < next_look_ || faulted_) return;
  next_look_ = now + kBetweenLooks;
  Status failed = gpu_->fabric().capabilities().device->health();
  while (failed.ok() && !enqueued_.empty()) {
    const Result<bool> done = enqueued_.front().batch->done->reached();
    failed = done.status();
    if (!done.ok() || !*done) break;
    record_on_device(*enqueued_.front().batch);
    enqueued_.pop_front();
  }
  watches_device_.store(!enqueued_.empty(), std::memory_order_release);
  if (enqueued_.empty()) return;
  Enqueued& first = enqueued_.front();
  const std::string what = describe(*first.batch) + " on a GPU";
  if (!failed.ok()) {
    faulted_ = true;
    const int self = group_.world_rank();
    faults_.fault(
        {self, "rank " + std::to_string(self) + " failed inside " + what + ": " + failed.message()});
  } else if (first.deadline == Deadline::never()) {
    first.deadline = Deadline::at(now + patience(*first.batch));
  } else if (first.deadline.passed()) {
    faulted_ = true;
    faults_.stuck({id_, first.batch->sequence, -1, what + " (ROUNDELAY_PROGRESS_TIMEOUT times 10)"});
  }
}

// The abort word is raised: streams that wait for a peer go on, and who synchronizes with the device does not
// wait for ever.
bool Lane::give_up_device(bool enqueueing) {
  if (!gpu_ || !(enqueueing || watches_device())) return false;
  gpu_->fabric().capabilities().device->give_up(abort_.cause());
  enqueued_.clear();
  watches_device_.store(false, std::memory_order_release);
  return true;
}

}  // namespace roundelay::runtime
