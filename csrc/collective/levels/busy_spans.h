// Tells a call's observer of each time span in which there was work inside the node, or between nodes.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "base/clock.h"
#include "collective/level_observer.h"

namespace roundelay::collective::levels {

// One thread at a time.
class BusySpans {
 public:
  // `observer` may be null. `stages`: the names of work between nodes, and inside them; they outlive it.
  BusySpans(LevelObserver* observer, const std::array<std::string, 2>& stages)
      : observer_(observer), stages_(stages) {}

  // Notes whether there is work inside the node, or between nodes, from now on.
  void note(bool in_node, bool busy) {
    std::optional<TimePoint>& since = since_[in_node];
    if (observer_ == nullptr || busy == since.has_value()) return;
    const TimePoint now = steady_now();
    if (since) {
      observer_->busy(in_node ? 0 : 1, stages_[in_node], *since, now);
      since.reset();
    } else {
      since = now;
    }
  }

 private:
  LevelObserver* const observer_;
  const std::array<std::string, 2>& stages_;
  std::array<std::optional<TimePoint>, 2> since_{};
};

}  // namespace roundelay::collective::levels
