// Measures how far this rank's clock is from rank 0's, by a few pings one after the other to the rank above
// it in the world's tree (negotiate/report_tree.h), which has measured its own before it answers. Only the
// holder of the negotiation token uses it.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
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

  // Sends the first ping to the rank `above`; -1 on rank 0. The sink gets the offset after the last answer.
  void start(int above, TimePoint now);
  // Answers the ping of a rank, once this rank knows rank 0's clock.
  void on_ping(int from, const wire::Ping& ping, TimePoint now);
  // Takes the answer to a ping. Answers with token 0 are not for the clock.
  void on_pong(const wire::Pong& pong, TimePoint now);

 private:
  void answer(int to, const wire::Ping& ping, TimePoint now);

  ControlLink& link_;
  NegotiationSink& sink_;
  int above_ = -1;
  std::optional<Duration> offset_;  // rank 0's clock is this rank's and so much more
  std::vector<timeline::ClockSample> samples_;
  std::vector<std::pair<int, wire::Ping>> waiting_;  // who asked before this rank knew
};

}  // namespace roundelay::control
