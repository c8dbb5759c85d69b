#include "control/clock_probe.h"

namespace roundelay::control {

void ClockProbe::start(int above, TimePoint now) {
  above_ = above;
  samples_.clear();
  if (above < 0) {
    offset_ = Duration{0};
  } else {
    link_.send(above, wire::Ping{1, nanoseconds(now)});
  }
}

void ClockProbe::on_ping(int from, const wire::Ping& ping, TimePoint now) {
  if (ping.token == 0 || offset_) return answer(from, ping, now);
  waiting_.emplace_back(from, ping);
}

void ClockProbe::answer(int to, const wire::Ping& ping, TimePoint now) {
  link_.send(to, wire::Pong{ping.token, ping.sent, nanoseconds(now + offset_.value_or(Duration{0}))});
}

// An answer that had to wait is a bad sample, and estimate() takes the best one.
void ClockProbe::on_pong(const wire::Pong& pong, TimePoint now) {
  if (pong.token == 0) return;
  samples_.push_back({pong.sent, pong.here, nanoseconds(now)});
  if (samples_.size() < kSamples) {
    link_.send(above_, wire::Ping{pong.token + 1, nanoseconds(now)});
    return;
  }
  const auto estimated = timeline::estimate(samples_);
  if (!estimated) return;
  offset_ = Duration(estimated->offset);
  sink_.clock_offset(estimated->offset);
  for (const auto& [from, ping] : std::exchange(waiting_, {})) answer(from, ping, now);
}

}  // namespace roundelay::control
