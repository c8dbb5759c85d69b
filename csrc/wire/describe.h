// Names of operations and ranks in error texts.
#pragma once

#include <span>
#include <string>

#include "wire/messages.h"

namespace roundelay::wire {

// Returns "allreduce of 'grad.weight'", "broadcast of 'model' (3 tensors)" or "barrier()". Leaves out the
// name if the request has none yet. Adds the technique if it is not dense.
std::string describe(const Request& request);

// Returns "technique 'topk:density=0.01'" or "dense".
std::string describe_technique(const Request& request);

// Returns "rank 1" or "ranks 1, 2".
std::string describe_ranks(std::span<const int> ranks);

}  // namespace roundelay::wire
