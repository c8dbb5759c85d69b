// Learns when calls were busy on a level: the timeline shows it.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/clock.h"

namespace roundelay::collective {

// The thread that tests the call calls it.
class LevelObserver {
 public:
  virtual ~LevelObserver() = default;
  // A call had work in progress on this level all the time from `begin` to `end`. `level` is 0 inside nodes,
  // 1 between them, in all stages there; `stages` tells their numbers of members, "between nodes: 2 x 3". The
  // times of one level come in ascending order and do not overlap.
  virtual void busy(std::size_t level, std::string_view stages, TimePoint begin, TimePoint end) = 0;
};

}  // namespace roundelay::collective
