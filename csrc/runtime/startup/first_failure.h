// Tells the members of a group which of them has failed.
#pragma once

#include "base/clock.h"
#include "base/status.h"
#include "collective/fabric.h"

namespace roundelay::runtime {

// All members call it. Returns the least index of a member that passes well = false, or the group's size if
// there is none. Errors: the fabric's.
Result<int> first_failure(collective::Fabric& fabric, bool well, Deadline deadline);

}  // namespace roundelay::runtime
