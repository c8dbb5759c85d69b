// When the device did what, in the host's time: from timestamps in its streams, read when it is past them.
//
// A device has a clock of its own. What ties it to the host's: no timestamp is earlier than the host's call
// that marked it. The call is nearly as late as the timestamp where a stream was idle, so that what is said
// here is early by the time that such a mark takes, some 10 us, and nothing seems to come before it was asked
// for. No stream and no host waits for that.
#pragma once

#include <optional>

#include "base/clock.h"
#include "base/gpu.h"

namespace roundelay::runtime {

// Of one stream. One thread at a time.
class DeviceClock {
 public:
  struct Mark {
    GpuTimestampPtr point;  // null: none was made
    TimePoint called{};     // before the call that marked it
  };
  struct Span {
    TimePoint begin, end;
  };

  // Whether it is time for a mark in an idle stream: the clocks drift apart, and what is measured between
  // points that are far from each other is coarse.
  [[nodiscard]] bool wants_reference(TimePoint now) const;
  void refer_to(Mark idle);

  // What lies between two marks of the stream; in the order of the stream. Nothing: one of them is not
  // reached, or the first reference is not.
  [[nodiscard]] std::optional<Span> between(const Mark& begin, const Mark& end);

 private:
  void take_reference();
  [[nodiscard]] std::optional<TimePoint> time_of(const Mark& mark);

  Mark reference_;  // its `called` is the best that is known of when the device was there
  Mark next_;       // the reference when it is reached
  TimePoint asked_{};
  TimePoint last_{};
};

}  // namespace roundelay::runtime
