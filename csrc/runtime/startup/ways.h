// Chooses the plans over levels that a group gets, and lists the ways of an allreduce that a search may try.
// Pure.
#pragma once

#include "base/config.h"
#include "base/group.h"
#include "bootstrap/topology.h"
#include "collective/fabric.h"
#include "collective/levels/member_plan.h"
#include "runtime/allreduce_ways.h"
#include "runtime/startup/algorithm_choice.h"
#include "runtime/startup/level_plan.h"

namespace roundelay::runtime {

// Returns the wishes for a group. `whole_job`: it has all ranks; ROUNDELAY_FACTORS is for them alone, and
// only they have several plans.
PlanWishes wishes_for(const Config& config, const AlgorithmChoice& algorithms, bool whole_job);

// Returns the group of some members, by their indices in a group.
Group part_of(const Group& group, const collective::levels::Members& members);

// Returns the ways of an allreduce of all ranks, whose fabric is made.
AllreduceWays ways_of(const Config& config, const AlgorithmChoice& algorithms,
                      const bootstrap::Topology& topology, const collective::Fabric& world);

}  // namespace roundelay::runtime
