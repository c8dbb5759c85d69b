// Plans how the allreduces of a group go over the levels of the topology. Pure: all members plan the same.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/factors.h"
#include "base/group.h"
#include "base/status.h"
#include "bootstrap/topology.h"
#include "collective/levels/member_plan.h"
#include "collective/levels/schedule.h"
#include "model/levels.h"

namespace roundelay::runtime {

struct LevelPlan {
  // Members have the numbers of their places in the group. Fewer than two stages: the group gains nothing
  // from levels.
  collective::levels::MemberPlan plan;
  collective::levels::Tree tree;       // has one level for each stage
  std::vector<model::Factor> factors;  // one for each stage, innermost first
  std::size_t shard_bytes = collective::levels::kShardBytes;

  // Returns the most bytes of a shard in a long call. The shards that the formula has chosen stay as they
  // are, unless it would have taken larger ones.
  [[nodiscard]] std::size_t most_shard_bytes() const;
  // Returns whether the groups of a stage lie within nodes.
  [[nodiscard]] bool in_node(std::size_t stage) const { return factors[stage].last_level == 0; }
  // Returns the stages, with the names of their fabrics, for the log.
  [[nodiscard]] std::string stages_text(const std::string& inside, const std::string& between) const;
};

// Returns the topology's levels with the members of a group, and their links. A level counts with its largest
// number of parts. `measured`: the links of each level, innermost first, of which the last one stands for all
// further levels; empty: the usual ones.
model::Cluster cluster_of(const Group& group, const bootstrap::Topology& topology,
                          const std::vector<model::Link>& measured);

// Says which plans a group gets.
struct PlanWishes {
  FactorLists forced{};                 // ROUNDELAY_FACTORS; empty: the cost formula decides
  std::vector<model::Link> measured{};  // as for cluster_of(); empty: a level is one stage
  bool several = false;  // the fastest other plans by the formula, too, unless plans are forced
};

// Returns the plans of a group of two or more ranks, as its member `group.index` sees them. The first one is
// used, and a search may try the others. They differ between nodes alone. Errors: kInvalidArgument if the
// factors do not fit the levels or each other, the same on all members.
Result<std::vector<LevelPlan>> plan_levels(const Group& group, const bootstrap::Topology& topology,
                                           const PlanWishes& wishes);

}  // namespace roundelay::runtime
