// Follows an algorithm message by message. So it gives times for ranks that begin at different times; the
// formulas (collectives.h) hold for ranks that begin together. Pure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "model/collectives.h"

namespace roundelay::model {

// Returns when each rank has the result of an allreduce of `bytes` bytes, if rank i begins at begins[i] and
// shares its end of the link with no other. In each round a rank sends its messages one after the other, and
// waits for those of its peers. Nothing: the algorithm is the pipelined tree, whose messages are cut into
// segments; take the formula there. O(ranks * messages of a rank).
std::optional<std::vector<double>> allreduce_ends(Algorithm algorithm, std::span<const double> begins,
                                                  double bytes, const Link& link);

}  // namespace roundelay::model
