#include "base/clock.h"

#include <algorithm>
#include <limits>
#include <ratio>

namespace roundelay {

std::string seconds_text(Duration duration) {
  using Tenths = std::chrono::duration<std::int64_t, std::deci>;
  if (duration >= std::chrono::seconds(10)) {
    return std::to_string(std::chrono::round<std::chrono::seconds>(duration).count()) + " s";
  }
  const std::int64_t least = duration > Duration{0} ? 1 : 0;
  const std::int64_t tenths = std::max(std::chrono::round<Tenths>(duration).count(), least);
  const std::string part = tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10);
  return std::to_string(tenths / 10) + part + " s";
}

int Deadline::poll_milliseconds(TimePoint now) const {
  if (*this == never()) return -1;
  if (passed(now)) return 0;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(look(now) - now).count();
  return static_cast<int>(std::min<decltype(left)>(left, std::numeric_limits<int>::max()));
}

}  // namespace roundelay
