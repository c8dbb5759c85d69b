// A member's watch over its coordinator. The coordinator names all late members; this class finds out that
// the coordinator itself is silent. Pure: the caller passes the time and does what check() returns.
#pragma once

#include "base/clock.h"

namespace roundelay::negotiate {

class CoordinatorWatch {
 public:
  enum class Action : unsigned char { kNothing, kPing, kWarn, kAbort };

  // The silence after which check() warns and aborts. Zero: never.
  CoordinatorWatch(Duration warning, Duration abort);

  // The coordinator sent a message, so it lives.
  void on_heard(TimePoint now);
  // Returns what the caller has to do now. kPing asks the coordinator for a message before kWarn or kAbort.
  // `waiting`: this rank has operations that wait for an order. Without them no time counts.
  Action check(bool waiting, TimePoint now);
  // When check() has something new to say.
  [[nodiscard]] Deadline next_due() const;
  // The time since the coordinator last sent a message.
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
