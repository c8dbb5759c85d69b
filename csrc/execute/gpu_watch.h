// The batches that a lane has enqueued on a GPU. The host is done with such a batch when it is enqueued; this
// keeps it until the device is done, too.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "execute/batch.h"
#include "execute/gpu_buffers.h"
#include "execute/lane_recorder.h"
#include "gpu/gpu_sequencer.h"

namespace roundelay::execute {

// One thread at a time, the holder of the lane's token; active() from any thread.
class GpuWatch {
 public:
  struct Failure {
    std::uint64_t sequence = 0;  // the order of the first batch that the device has not done
    std::string batch;           // names this batch
    Status cause;                // ok: the device has not done it within the timeout
  };

  // `sequencer`: null if the lane takes no tensors on a GPU. `timeout`: the time that the device may take
  // for a batch when all before it is done. `sequencer` and `recorder` outlive the watch.
  GpuWatch(gpu::GpuSequencer* sequencer, Duration timeout, LaneRecorder& recorder)
      : sequencer_(sequencer), timeout_(timeout), recorder_(recorder) {}

  // Returns whether the batch's turn on the GPU has come (gpu/gpu_sequencer.h). False: GpuSequencer
  // wakes the lane when the turn may have come.
  [[nodiscard]] bool may_start(const Batch& batch) const {
    return !batch.ticket || sequencer_ == nullptr || sequencer_->may_go(batch.ticket->previous);
  }
  // Gives up the batch's ticket, and lets the next turn come, if this was the last batch of its ticket. Call
  // it when the batch is enqueued, or was skipped; or when it has begun and never lets the device wait for a
  // peer.
  void leave_ticket(Batch& batch) const {
    if (!batch.ticket || !batch.ends_tickets || sequencer_ == nullptr) return;
    sequencer_->gone(batch.ticket->number);
    batch.ticket.reset();
  }

  // Keeps a batch that is enqueued. True: it is the only one, so the caller wakes the lane's thread to look.
  [[nodiscard]] bool add(std::unique_ptr<Batch> batch);
  // Frees the batches that the device has done and records their times. Looks at most once in 5 ms. Returns a
  // failure of the device, or the first batch's if it is late.
  [[nodiscard]] std::optional<Failure> look(TimePoint now, GpuBuffers& buffers);
  // Frees all batches, also those on which the device still works. Call it after a fault.
  void clear();
  // Returns whether look() has something to look at.
  [[nodiscard]] bool active() const { return active_.load(std::memory_order_acquire); }

 private:
  struct Enqueued {
    std::unique_ptr<Batch> batch;
    Deadline deadline;  // never: the device has not done all before it
  };

  gpu::GpuSequencer* const sequencer_;
  const Duration timeout_;
  LaneRecorder& recorder_;
  std::deque<Enqueued> enqueued_;  // the stream's first one comes first
  TimePoint next_look_{};
  std::atomic<bool> active_{false};
};

}  // namespace roundelay::execute
