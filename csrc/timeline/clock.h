// Estimates the offset between two ranks' clocks from pings. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace roundelay::timeline {

// One ping and its pong, in nanoseconds of a steady clock.
struct ClockSample {
  std::int64_t sent = 0;      // local clock
  std::int64_t remote = 0;    // remote clock, when it answered
  std::int64_t received = 0;  // local clock
};

struct ClockOffset {
  std::int64_t offset = 0;  // ns: remote clock minus local clock
  std::int64_t error = 0;   // ns: the true offset differs by no more than this
  friend bool operator==(const ClockOffset&, const ClockOffset&) = default;
};

// Returns the estimate of the sample with the shortest round trip: queueing only makes trips longer. Skips
// samples that were received before they were sent. Nothing if no sample is left.
std::optional<ClockOffset> estimate(std::span<const ClockSample> samples);

}  // namespace roundelay::timeline
