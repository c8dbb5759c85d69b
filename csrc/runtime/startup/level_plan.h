// Plans how the allreduces of a group go over the levels of the topology. Pure: all members plan the same.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/factors.h"
#include "base/group.h"
#include "base/status.h"
#include "bootstrap/topology.h"
#include "collective/blueconnect/cost.h"
#include "collective/blueconnect/member_plan.h"

namespace roundelay::runtime {

struct LevelPlan {
  // Members have the numbers of their places in the group. Fewer than two stages: the group gains nothing
  // from levels.
  collective::blueconnect::MemberPlan plan;
  std::vector<collective::blueconnect::Factor> factors;  // one for each stage
  std::size_t shard_bytes = collective::blueconnect::kShardBytes;

  // Returns whether the groups of a stage lie within nodes.
  [[nodiscard]] bool in_node(std::size_t stage) const { return factors[stage].last_level == 0; }
  // Returns the stages, with the names of their fabrics, for the log.
  [[nodiscard]] std::string stages_text(const std::string& inside, const std::string& between) const;
};

// Returns the plan of a group of two or more ranks, as its member `group.index` sees it.
// `forced`: ROUNDELAY_FACTORS; empty: the cost formula decides. `measured`: the links of each level,
// innermost first, of which the last one stands for all further levels; empty: the usual ones, by which a
// level is at most one stage. Errors: kInvalidArgument if the factors do not fit the levels, the same on all
// members.
Result<LevelPlan> plan_levels(const Group& group, const bootstrap::Topology& topology, const Factors& forced,
                              const std::vector<collective::blueconnect::Link>& measured);

}  // namespace roundelay::runtime
