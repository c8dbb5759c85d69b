// Measures how far this rank's clock is from rank 0's, by a few pings one after the other. Only the holder of
// the negotiation token uses it.
#pragma once

#include <vector>

#include "control/control_link.h"
#include "control/negotiation_sink.h"
#include "timeline/clock.h"

namespace roundelay::control {

class ClockProbe {
 public:
  static constexpr std::size_t kSamples = 8;  // pings that a rank sends

  // The references outlive the probe.
  ClockProbe(ControlLink& link, NegotiationSink& sink) : link_(link), sink_(sink) {}

  // Sends the first ping. The sink gets the offset after the last answer. Does nothing on rank 0.
  void start(TimePoint now) {
    samples_.clear();
    if (link_.rank() != 0) link_.send(0, wire::Ping{1, nanoseconds(now)});
  }

  // Takes the answer to a ping. Answers with token 0 are not for the clock.
  void on_pong(const wire::Pong& pong) {
    if (pong.token == 0) return;
    const TimePoint now = steady_now();
    samples_.push_back({pong.sent, pong.here, nanoseconds(now)});
    if (samples_.size() < kSamples) {
      link_.send(0, wire::Ping{pong.token + 1, nanoseconds(now)});
    } else if (const auto offset = timeline::estimate(samples_)) {
      sink_.clock_offset(offset->offset);
    }
  }

 private:
  ControlLink& link_;
  NegotiationSink& sink_;
  std::vector<timeline::ClockSample> samples_;
};

}  // namespace roundelay::control
