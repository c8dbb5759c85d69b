// A call that its user has made, with memory and all, for a lane in call order (execute/lane.h).
#pragma once

#include <functional>

#include "base/clock.h"
#include "base/status.h"
#include "collective/call.h"

namespace roundelay::collective {

struct WholeCall {
  Call call;  // the lane sets the deadline, the abort token and the mark's sequence
  // The time that it may take besides its transfer, waiting for late members included.
  Duration timeout{};
  // Brings what the call takes to its memory, when its turn comes; empty: it is there. It may wait for a
  // device until the call's deadline, as later calls wait for this one.
  std::function<Status()> begin{};
  // No member calls the fabric: the entry's technique gives back what it keeps. Such an entry is this
  // member's alone, and counts among no calls.
  bool local = false;
};

}  // namespace roundelay::collective
