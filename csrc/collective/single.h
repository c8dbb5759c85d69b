// Calls in which nobody else takes part: they copy and scale.
#pragma once

#include "collective/fabric.h"

namespace roundelay::collective {

void finish_single(const Call& call);

}  // namespace roundelay::collective
