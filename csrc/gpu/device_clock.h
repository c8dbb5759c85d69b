// Translates the device's times to the host's clock, from timestamps that the device has passed in its
// streams.
//
// A device has a clock of its own. One fact ties it to the host's: a timestamp is never earlier than the
// host's call that marked it. In an idle stream the two are about 10 us apart. So the translated times are
// early by that much, and no work seems to begin before the host asked for it. No stream and no host waits
// for the clock.
#pragma once

#include <optional>

#include "base/clock.h"
#include "base/gpu.h"

namespace roundelay::gpu {

// The clock of one stream. One thread at a time.
class DeviceClock {
 public:
  struct Mark {
    GpuTimestampPtr point;  // null: the runtime made none
    TimePoint called{};     // the host's time just before it marked the point
  };
  struct Span {
    TimePoint begin, end;
  };

  // Returns true if the caller has to call refer_to() now: about once a second, because the clocks drift
  // apart, and the device measures coarsely between points that are far from each other.
  [[nodiscard]] bool wants_reference(TimePoint now) const;
  // Takes a mark in an idle stream of the same device as the next reference.
  void refer_to(Mark idle);

  // Returns the host's times of two marks. Call it for pairs in stream order; spans do not overlap. Nothing:
  // the device has not passed one of them, or the first reference.
  [[nodiscard]] std::optional<Span> between(const Mark& begin, const Mark& end);

 private:
  void take_reference();
  [[nodiscard]] std::optional<TimePoint> time_of(const Mark& mark);

  Mark reference_;     // its `called` is the latest lower bound known of its time
  Mark next_;          // becomes the reference when the device has passed it
  TimePoint asked_{};  // the last refer_to()
  TimePoint last_{};   // the end of the last span
};

}  // namespace roundelay::gpu
