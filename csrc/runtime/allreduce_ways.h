// The ways that an allreduce of all ranks may take on the CPU, and what a cost formula needs to rate them.
#pragma once

#include <string>
#include <vector>

#include "model/levels.h"

namespace roundelay::runtime {

struct AllreduceWays {
  using Stages = std::vector<model::Factor>;  // the stages, innermost first

  model::Cluster cluster{};     // the topology's levels
  std::vector<Stages> plans{};  // the first one is used, and calls may ask for the others; none: one rank
  // The last stage's algorithm for large messages. Empty: it is in shared memory, which has one way.
  std::string algorithm{};
};

}  // namespace roundelay::runtime
