// The check that every fabric makes before it moves a byte.
#pragma once

#include "collective/fabric.h"

namespace roundelay::collective {

// Returns kInvalidArgument if `call` makes no sense for this member of `group`, or needs an ability that the
// fabric does not have (FabricCapabilities). For an absent member it checks only the list of absent members.
Status check_call(const Call& call, const Group& group, const FabricCapabilities& fabric);

}  // namespace roundelay::collective
