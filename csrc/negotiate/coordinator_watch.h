// A member's absence clock: is the coordinator itself still there? It names everybody who is late, but nobody
// would name it. Pure: what was heard and the time in, what to do out.
#pragma once

#include "base/clock.h"

namespace roundelay::negotiate {

class CoordinatorWatch {
 public:
  enum class Action : unsigned char { kNothing, kPing, kWarn, kAbort };

  // As for the coordinator's own clock; zero: never.
  CoordinatorWatch(Duration warning, Duration abort);

  // Any message from it: it lives, however late others are.
  void on_heard(TimePoint now);
  // `waiting`: this rank has operations that wait for an order.
  Action check(bool waiting, TimePoint now);
  [[nodiscard]] Deadline next_due() const;
  [[nodiscard]] Duration silence(TimePoint now) const { return now - heard_; }

 private:
  [[nodiscard]] Deadline abort_due() const;

  Duration ask_after_;  // zero: the watch is off
  Duration warning_;
  Duration abort_;
  bool waiting_ = false;
  bool asked_ = false;
  bool warned_ = false;
  TimePoint heard_{};  // or since when this rank waits
  TimePoint asked_at_{};
};

}  // namespace roundelay::negotiate
