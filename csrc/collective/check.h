// What every fabric refuses before it moves a byte.
#pragma once

#include "collective/fabric.h"

namespace roundelay::collective {

// kInvalidArgument if `call` makes no sense for this member of `group`, or is scattered where the fabric does
// not take that. Of an absent member only the operation and the list of absent members are looked at.
Status check_call(const Call& call, const Group& group, bool takes_scattered = false);

}  // namespace roundelay::collective
