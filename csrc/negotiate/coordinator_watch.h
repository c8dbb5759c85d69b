// A member's watch over its coordinator. The coordinator names all late members; this class finds out that
// the coordinator itself is silent. Pure: the caller passes the time and does what check() returns.
#pragma once

#include "base/clock.h"

namespace roundelay::negotiate {

class CoordinatorWatch {
 public:
  enum class Action : unsigned char { kNothing, kPing, kWarn, kAbort };

  // check() warns and aborts after silences of this length. Zero: never.
  CoordinatorWatch(Duration warning, Duration abort);

  // Call it when the coordinator has sent a message of any kind.
  void on_heard(TimePoint now);
  // Returns the action that is due now. kPing asks the coordinator for a message before kWarn or kAbort;
  // these two come kArbiterTimeout (negotiate/watchdog.h) after the ping at the earliest. `waiting`: this
  // rank has operations that wait for an order. Without them no time counts.
  Action check(bool waiting, TimePoint now);
  // Returns the time at which to call check() again.
  [[nodiscard]] Deadline next_due() const;
  // Returns the time since the coordinator last sent a message, or since this rank began to wait.
  [[nodiscard]] Duration silence(TimePoint now) const { return now - heard_; }

 private:
  [[nodiscard]] Deadline abort_due() const;

  Duration ask_after_;  // pings after this silence; zero: the watch is off
  Duration warning_;
  Duration abort_;
  bool waiting_ = false;
  bool asked_ = false;
  bool warned_ = false;
  TimePoint heard_{};  // the last message, or the moment at which this rank began to wait
  TimePoint asked_at_{};
};

}  // namespace roundelay::negotiate
