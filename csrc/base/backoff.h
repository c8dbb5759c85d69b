// A thread that polls for a condition waits with these: it spins, then yields its core, then sleeps.
#pragma once

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/futex.h"

namespace roundelay {

// A pause until the next poll. It is a value, so that a thread may release its token between getting a pause
// and taking it.
class Nap {
 public:
  Nap() = default;  // no pause
  explicit Nap(Duration sleep) : kind_(Kind::kSleep), most_(sleep) {}
  // Sleeps until `doorbell` is no longer `seen`, or `most` is over. The doorbell outlives the nap.
  Nap(const FutexWord& doorbell, std::uint32_t seen, Duration most)
      : kind_(Kind::kDoorbell), most_(most), doorbell_(&doorbell), seen_(seen) {}
  // Sleeps until `descriptor` is readable, or `most` is over. It stays open during the nap.
  static Nap until_readable(int descriptor, Duration most) {
    Nap nap(most);
    nap.kind_ = Kind::kReadable;
    nap.descriptor_ = descriptor;
    return nap;
  }
  static Nap yield() {
    Nap nap;
    nap.kind_ = Kind::kYield;
    return nap;
  }

  // Returns the same pause, but no sleep is longer than `longest`.
  [[nodiscard]] Nap at_most(Duration longest) const {
    Nap nap = *this;
    nap.most_ = std::min(nap.most_, longest);
    return nap;
  }

  [[nodiscard]] Duration length() const { return most_; }
  [[nodiscard]] bool sleeps() const { return kind_ != Kind::kNone && kind_ != Kind::kYield; }

  // Waits until the pause is over.
  void wait() const {
    if (kind_ == Kind::kYield) sched_yield();
    if (kind_ == Kind::kSleep) std::this_thread::sleep_for(most_);
    if (kind_ == Kind::kDoorbell) futex_wait(*doorbell_, seen_, most_);
    if (kind_ == Kind::kReadable) wait_until_readable();
  }

 private:
  enum class Kind : unsigned char { kNone, kYield, kSleep, kDoorbell, kReadable };

  void wait_until_readable() const {
    pollfd watched{.fd = descriptor_, .events = POLLIN, .revents = 0};
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(most_);
    const timespec limit{seconds.count(), (most_ - seconds).count()};
    static_cast<void>(::ppoll(&watched, 1, &limit, nullptr));
  }

  Kind kind_ = Kind::kNone;
  Duration most_{0};
  const FutexWord* doorbell_ = nullptr;
  std::uint32_t seen_ = 0;
  int descriptor_ = -1;
};

// Spins for 50 us, yields for as long again, then sleeps in steps that double up to `longest`. `crowded`: it
// does not spin, because ranks outnumber cores and the peer needs this core.
class Backoff {
 public:
  static constexpr Duration kSpin = std::chrono::microseconds(50);
  static constexpr Duration kLongest = std::chrono::microseconds(200);

  explicit Backoff(bool crowded = false, Duration longest = kLongest)
      : crowded_(crowded), longest_(longest) {}

  // Starts again with spinning. Call it when something has moved.
  void reset() { *this = Backoff(crowded_, longest_); }

  // Waits for the next pause.
  void pause() { next().wait(); }

  // Returns the next pause.
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

}  // namespace roundelay
