// The time that messages take between the members of an InprocHub, on a clock that stands still until
// somebody moves it. So the measured times are exact and the same in every run.
//
// A member sends one message after the other, and receives one after the other: a message of n bytes occupies
// both ports for n / W. It arrives `alpha` later (the model of algorithms in docs/techniques/topology.md).
// This suits algorithms with one partner at a time: of several messages at once, one may wait for a busy port
// while another port stands idle, where a network would share the ports among them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <queue>
#include <vector>

#include "base/clock.h"

namespace roundelay::collective {

// One thread at a time: the hub's lock protects it, or one thread steps all members.
class SimulatedNetwork {
 public:
  // `bytes_per_second`: W, of each port.
  SimulatedNetwork(int members, Duration alpha, double bytes_per_second)
      : alpha_(alpha),
        bytes_per_second_(bytes_per_second),
        sends_until_(static_cast<std::size_t>(members)),
        receives_until_(static_cast<std::size_t>(members)) {}

  // Returns the time since the network was made.
  [[nodiscard]] Duration now() const { return now_; }
  // Returns when a message is there that both sides have posted by now.
  Duration delivery(int from, int to, std::size_t bytes) {
    Duration& sends = sends_until_[static_cast<std::size_t>(from)];
    Duration& receives = receives_until_[static_cast<std::size_t>(to)];
    const std::chrono::duration<double> passing(static_cast<double>(bytes) / bytes_per_second_);
    const Duration end = std::max({now_, sends, receives}) + std::chrono::duration_cast<Duration>(passing);
    sends = receives = end;
    deliveries_.push(end + alpha_);
    return end + alpha_;
  }
  // Moves the clock to the next delivery. False: nothing is on its way.
  bool advance() {
    while (!deliveries_.empty() && deliveries_.top() <= now_) deliveries_.pop();
    if (deliveries_.empty()) return false;
    now_ = deliveries_.top();
    return true;
  }

 private:
  const Duration alpha_;
  const double bytes_per_second_;
  Duration now_{};
  std::vector<Duration> sends_until_, receives_until_;  // the times at which the members' ports are free
  std::priority_queue<Duration, std::vector<Duration>, std::greater<>> deliveries_;
};

}  // namespace roundelay::collective
