// How a thread waits for something that only polling can tell: hot, then polite, then asleep.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"

namespace roundelay::collective {

// Spins for 50 us (not at all where ranks outnumber cores: the peer needs this core), yields for as long
// again, then sleeps in steps that double up to `longest`.
class Backoff {
 public:
  static constexpr Duration kSpin = std::chrono::microseconds(50);
  static constexpr Duration kLongest = std::chrono::microseconds(200);

  explicit Backoff(bool crowded = false, Duration longest = kLongest)
      : crowded_(crowded), longest_(longest) {}

  void reset() { *this = Backoff(crowded_, longest_); }

  void pause() {
    if (const Duration step = next(); step > Duration{0}) std::this_thread::sleep_for(step);
  }

  // What to do before the next poll: spins or yields itself and returns 0, or returns how long to sleep.
  Duration next() {
    if (sleep_ > Duration{0}) {
      const Duration now = sleep_;
      sleep_ = std::min(sleep_ * 2, longest_);
      return now;
    }
    const Duration spun = since_start();
    if (crowded_ || spun >= kSpin) sched_yield();
    if (spun >= 2 * kSpin) sleep_ = std::chrono::microseconds(10);
    return Duration{0};
  }

 private:
  Duration since_start() {
    const TimePoint now = steady_now();
    if (start_ == TimePoint{}) start_ = now;
    return now - start_;
  }

  bool crowded_;
  Duration longest_;
  TimePoint start_{};
  Duration sleep_{0};
};

}  // namespace roundelay::collective
