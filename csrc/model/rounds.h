// An algorithm's messages one by one, from any starting times: what a formula says only of ranks that begin
// together.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "model/collectives.h"

namespace roundelay::model {

// Returns when each rank has the result of an allreduce of `bytes` bytes, if rank i begins at begins[i] and
// has an end of its own. In each round a rank sends its messages one behind the other, and waits for those of
// its peers. Returns null for the pipelined tree, whose messages are cut into segments: take the formula
// there. O(ranks * messages of a rank).
std::optional<std::vector<double>> allreduce_ends(Algorithm algorithm, std::span<const double> begins,
                                                  double bytes, const Link& link);

}  // namespace roundelay::model
