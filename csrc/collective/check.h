// What every fabric refuses before it moves a byte.
#pragma once

#include "collective/fabric.h"

namespace roundelay::collective {

// kInvalidArgument if `call` makes no sense for a group of `size` members.
Status check_call(const Call& call, int size);

}  // namespace roundelay::collective
