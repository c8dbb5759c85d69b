// Counts the threads of the program that wait at the same time. If there are several, a waiter leaves its
// core to the others, and what all of them submit is negotiated together.
#pragma once

#include <atomic>

namespace roundelay::runtime {

// Thread-safe.
class Waiters {
 public:
  // Counts the calling thread as a waiter, for one scope.
  class Scope {
   public:
    explicit Scope(Waiters& waiters) : waiters_(waiters) { waiters_.come(); }
    ~Scope() { waiters_.waiting_.fetch_sub(1, std::memory_order_relaxed); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Waiters& waiters_;
  };

  // Returns whether several threads have waited at once lately.
  [[nodiscard]] bool several() const { return together_.load(std::memory_order_relaxed) > 1; }
  // Returns whether another thread waits now. A waiter calls it.
  [[nodiscard]] bool others() const { return waiting_.load(std::memory_order_relaxed) > 1; }
  // Yields the core until as many threads wait as did lately, for a few microseconds at most: threads whose
  // operations ended together often submit the next ones together. If fewer come, later calls expect fewer.
  // A waiter calls it.
  void gather();

 private:
  void come();

  std::atomic<int> waiting_{0};
  std::atomic<int> together_{0};  // so many threads have waited at once lately
};

}  // namespace roundelay::runtime
