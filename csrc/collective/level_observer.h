// Is told when calls were busy on a level, for the timeline.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/clock.h"

namespace roundelay::collective {

// The thread that tests the call calls it.
class LevelObserver {
 public:
  virtual ~LevelObserver() = default;
  // Tells that a call was at work on this level from `begin` to `end` without a break. `level`: 0 inside
  // nodes, 1 for all stages between nodes. `stages`: a text with the members of these stages, "between nodes:
  // 2 x 3". The times of one level come in ascending order and do not overlap.
  virtual void busy(std::size_t level, std::string_view stages, TimePoint begin, TimePoint end) = 0;
};

}  // namespace roundelay::collective
