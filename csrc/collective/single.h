// Calls in which nobody else takes part: they copy and scale.
#pragma once

#include "collective/fabric.h"

namespace roundelay::collective {

// Carries out a call of a group of one. `call` has been checked and its memory is the CPU's.
void finish_single(const Call& call);

}  // namespace roundelay::collective
