// The ways that an allreduce of all ranks may take on the CPU, and what a cost formula needs to rate them.
#pragma once

#include <string>
#include <vector>

#include "collective/blueconnect/cost.h"

namespace roundelay::runtime {

struct AllreduceWays {
  using Plan = std::vector<collective::blueconnect::Factor>;  // the stages, innermost first

  std::vector<collective::blueconnect::LevelCost> levels{};  // of the topology, innermost first
  std::vector<Plan> plans{};  // the first one is used, and calls may ask for the others; none: one rank
  // The last stage's algorithm for large messages. Empty: it is in shared memory, which has one way.
  std::string algorithm{};
};

}  // namespace roundelay::runtime
