#include "runtime/session/waiters.h"

#include <sched.h>

namespace roundelay::runtime {
namespace {

constexpr int kMostYields = 16;  // a yield takes 0.3 us if no other thread wants the core

}  // namespace

// Two threads that come at once may store the smaller number, which the next one mends.
void Waiters::come() {
  const int waiting = waiting_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (waiting > together_.load(std::memory_order_relaxed))
    together_.store(waiting, std::memory_order_relaxed);
}

void Waiters::gather() {
  const int expected = together_.load(std::memory_order_relaxed);
  if (expected <= 1) return;
  int waiting = waiting_.load(std::memory_order_relaxed);
  for (int yields = 0; yields < kMostYields && waiting < expected; ++yields) {
    sched_yield();
    waiting = waiting_.load(std::memory_order_relaxed);
  }
  if (waiting < expected) together_.store(waiting, std::memory_order_relaxed);
}

}  // namespace roundelay::runtime
