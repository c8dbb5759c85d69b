// Measures what communication costs a rank: the time that operations were under way, and the time that the
// program waited meanwhile (exposed time). Computation hides the rest of the time under way.
#pragma once

#include <algorithm>
#include <optional>

#include "base/clock.h"

namespace roundelay::complete {

// Times are unions of intervals: operations that are under way together count once, and so do threads that
// wait together. Pure. Not thread-safe. A `now` before the last one counts as the last one.
class Exposure {
 public:
  struct Wait {
    TimePoint begin;
    TimePoint end;
  };
  struct Times {
    Duration under_way{0};  // the time in which at least one operation was under way
    Duration exposed{0};    // and at least one thread waited
  };

  // Count an operation that begins, and one that ends.
  void submitted(TimePoint now) {
    advance(now);
    ++under_way_;
  }
  void completed(TimePoint now) {
    advance(now);
    --under_way_;
  }

  // Counts a thread that begins to wait.
  void wait_begins(TimePoint now) {
    advance(now);
    if (waiting_++ == 0) wait_began_ = last_;
  }
  // Counts a thread that ends its wait. If no other thread waits any more, returns the whole wait: from the
  // begin of the first thread to the end of the last.
  std::optional<Wait> wait_ends(TimePoint now) {
    advance(now);
    if (--waiting_ > 0) return std::nullopt;
    return Wait{wait_began_, last_};
  }

  // Returns the sums up to `now`.
  [[nodiscard]] Times until(TimePoint now) const {
    Exposure then = *this;
    then.advance(now);
    return then.times_;
  }

 private:
  void advance(TimePoint now) {
    const Duration passed = std::max(now - last_, Duration{0});
    if (under_way_ > 0) times_.under_way += passed;
    if (under_way_ > 0 && waiting_ > 0) times_.exposed += passed;
    last_ += passed;
  }

  Times times_;
  TimePoint last_{};
  TimePoint wait_began_{};
  int under_way_ = 0;
  int waiting_ = 0;
};

}  // namespace roundelay::complete
