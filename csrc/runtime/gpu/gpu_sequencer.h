// This rank's part in the order that all process sets' operations on GPUs have (negotiate/gpu_order.h): a
// lane enqueues an operation when its turn has come.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

namespace roundelay::runtime {

// One a process, of all its lanes. Thread-safe.
class GpuSequencer {
 public:
  // `came`: the turn of an operation that was told to wait may have come. By the caller of gone(), any
  // thread.
  explicit GpuSequencer(std::function<void()> came) : came_(std::move(came)) {}

  // Is the operation that has this ticket enqueued? If not, came() is called when it may be.
  [[nodiscard]] bool may_go(std::uint64_t previous) {
    if (gone_.load(std::memory_order_acquire) >= previous) return true;
    waiting_.store(true);
    return gone_.load() >= previous;  // else whoever gets there sees that somebody waits
  }

  // It is, also if it failed or this rank skips it. Only behind may_go(): one at a time, in order.
  void gone(std::uint64_t ticket) {
    gone_.store(ticket);
    if (waiting_.exchange(false)) came_();
  }

 private:
  const std::function<void()> came_;
  std::atomic<std::uint64_t> gone_{0};
  std::atomic<bool> waiting_{false};
};

}  // namespace roundelay::runtime
