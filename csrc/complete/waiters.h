// Counts the threads of the program that wait for operations of one lane at the same time.
#pragma once

#include <atomic>
#include <cstddef>

namespace roundelay::complete {

// Thread-safe.
class Waiters {
 public:
  // Counts the calling thread, for one scope.
  class Scope {
   public:
    explicit Scope(Waiters& waiters) : waiters_(waiters) { waiters_.come(); }
    ~Scope() { waiters_.now_.fetch_sub(1, std::memory_order_relaxed); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Waiters& waiters_;
  };

  // Returns the most threads at once since the last call. Threads that come at the same moment may make it
  // too small.
  std::size_t take_most() {
    return most_.exchange(now_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }

 private:
  void come() {
    const std::size_t now = now_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (now > most_.load(std::memory_order_relaxed)) most_.store(now, std::memory_order_relaxed);
  }

  std::atomic<std::size_t> now_{0};
  std::atomic<std::size_t> most_{0};
};

}  // namespace roundelay::complete
