// What a call is where nobody else takes part: copying and scaling.
#pragma once

#include "collective/fabric.h"

namespace roundelay::collective {

void finish_single(const Call& call);

}  // namespace roundelay::collective
