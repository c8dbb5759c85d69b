// This rank's side of the order in which process sets use a GPU (negotiate/gpu_order.h). A lane enqueues an
// operation when its turn has come: all operations with lower tickets are enqueued.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

namespace roundelay::gpu {

// All lanes of a process share one. Thread-safe.
class GpuSequencer {
 public:
  // `came` wakes the lanes: the turn of an operation that was told to wait may have come. The thread that
  // calls gone() calls it, and holds its lane's token.
  explicit GpuSequencer(std::function<void()> came) : came_(std::move(came)) {}

  // Returns whether the turn has come of the operation that follows the ticket `previous`: gone(previous) was
  // called. 0: it has. False: `came` is called later.
  [[nodiscard]] bool may_go(std::uint64_t previous) {
    if (gone_.load(std::memory_order_acquire) >= previous) return true;
    waiting_.store(true);
    return gone_.load() >= previous;  // still less: a later gone() sees waiting_
  }

  // Says that the operation with this ticket is enqueued; or has begun and never lets the device wait for a
  // peer; or has failed, or this rank skips it. Call it once, after may_go() was true for the operation: so
  // calls come one at a time, in the order of tickets.
  void gone(std::uint64_t ticket) {
    gone_.store(ticket);
    if (waiting_.exchange(false)) came_();
  }

 private:
  const std::function<void()> came_;
  std::atomic<std::uint64_t> gone_{0};  // the highest ticket that is enqueued
  std::atomic<bool> waiting_{false};    // a lane was told to wait
};

}  // namespace roundelay::gpu
