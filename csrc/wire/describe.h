// What errors call an operation.
#pragma once

#include <string>

#include "wire/messages.h"

namespace roundelay::wire {

// "allreduce of 'grad.weight'", "broadcast of 'model' (3 tensors)", "barrier()"; without the name where it
// has none yet.
std::string describe(const Request& request);

}  // namespace roundelay::wire
