// How a thread waits for something that only polling can tell: hot, then polite, then asleep.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/futex.h"

namespace roundelay::collective {

// How to pass the time until the next poll. A value: whoever asked for it may give up its token before.
class Nap {
 public:
  Nap() = default;  // no pause at all
  explicit Nap(Duration sleep) : kind_(Kind::kSleep), most_(sleep) {}
  // Until `doorbell` is no longer `seen`, or `most` is over. The doorbell outlives the nap.
  Nap(const FutexWord& doorbell, std::uint32_t seen, Duration most)
      : kind_(Kind::kDoorbell), most_(most), doorbell_(&doorbell), seen_(seen) {}
  static Nap yield() {
    Nap nap;
    nap.kind_ = Kind::kYield;
    return nap;
  }

  // The same, but no longer than that where it sleeps.
  [[nodiscard]] Nap at_most(Duration longest) const {
    Nap nap = *this;
    nap.most_ = std::min(nap.most_, longest);
    return nap;
  }

  [[nodiscard]] Duration length() const { return most_; }
  [[nodiscard]] bool sleeps() const { return kind_ == Kind::kSleep || kind_ == Kind::kDoorbell; }

  void take() const {
    if (kind_ == Kind::kYield) sched_yield();
    if (kind_ == Kind::kSleep) std::this_thread::sleep_for(most_);
    if (kind_ == Kind::kDoorbell) futex_wait(*doorbell_, seen_, most_);
  }

 private:
  enum class Kind : unsigned char { kNone, kYield, kSleep, kDoorbell };
  Kind kind_ = Kind::kNone;
  Duration most_{0};
  const FutexWord* doorbell_ = nullptr;
  std::uint32_t seen_ = 0;
};

// Spins for 50 us (not at all where ranks outnumber cores: the peer needs this core), yields for as long
// again, then sleeps in steps that double up to `longest`.
class Backoff {
 public:
  static constexpr Duration kSpin = std::chrono::microseconds(50);
  static constexpr Duration kLongest = std::chrono::microseconds(200);

  explicit Backoff(bool crowded = false, Duration longest = kLongest)
      : crowded_(crowded), longest_(longest) {}

  void reset() { *this = Backoff(crowded_, longest_); }

  void pause() { next().take(); }

  Nap next() {
    if (sleep_ > Duration{0}) {
      const Duration now = sleep_;
      sleep_ = std::min(sleep_ * 2, longest_);
      return Nap(now);
    }
    const Duration spun = since_start();
    if (spun >= 2 * kSpin) sleep_ = std::chrono::microseconds(10);
    return crowded_ || spun >= kSpin ? Nap::yield() : Nap();
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
