#include "base/clock.h"

#include <algorithm>
#include <limits>

namespace roundelay {

int Deadline::poll_milliseconds(TimePoint now) const {
  if (*this == never()) return -1;
  if (passed(now)) return 0;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(when_ - now).count();
  return static_cast<int>(std::min<decltype(left)>(left, std::numeric_limits<int>::max()));
}

}  // namespace roundelay
