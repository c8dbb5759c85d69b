// The times after which a member of a group is late.
#pragma once

#include "base/clock.h"

namespace roundelay {

struct StallLimits {
  Duration warning{0};  // zero: no warnings
  Duration abort{0};    // zero: gives nothing up
};

}  // namespace roundelay
