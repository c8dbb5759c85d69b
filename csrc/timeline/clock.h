// How far apart two ranks' clocks are, from pings. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace roundelay::timeline {

// One ping and its pong; nanoseconds of the steady clock of the rank named.
struct ClockSample {
  std::int64_t sent = 0;      // here
  std::int64_t remote = 0;    // there, when it answered
  std::int64_t received = 0;  // here
};

struct ClockOffset {
  std::int64_t offset = 0;  // ns: remote clock = local clock + offset
  std::int64_t error = 0;   // ns: the true offset is within +- this
  friend bool operator==(const ClockOffset&, const ClockOffset&) = default;
};

// The sample with the least round trip bounds the offset best: queueing only ever adds to a trip.
// Samples that run backwards are skipped; none left: nullopt.
std::optional<ClockOffset> estimate(std::span<const ClockSample> samples);

}  // namespace roundelay::timeline
