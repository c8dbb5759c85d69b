#include "timeline/clock.h"

namespace roundelay::timeline {

std::optional<ClockOffset> estimate(std::span<const ClockSample> samples) {
  const ClockSample* best = nullptr;
  for (const ClockSample& sample : samples) {
    const std::int64_t trip = sample.received - sample.sent;
    if (trip >= 0 && (best == nullptr || trip < best->received - best->sent)) best = &sample;
  }
  if (best == nullptr) return std::nullopt;
  const std::int64_t trip = best->received - best->sent;
  return ClockOffset{best->remote - (best->sent + trip / 2), (trip + 1) / 2};
}

}  // namespace roundelay::timeline
