#include "runtime/startup/ways.h"

namespace roundelay::runtime {
namespace {

// Returns whether a search may take other plans: they add in other orders.
bool searches_plans(const Config& config) {
  const bool is_auto = config.strategy == "auto" || config.strategy.starts_with("auto:");
  return config.autotune && is_auto && !config.deterministic;
}

}  // namespace

PlanWishes wishes_for(const Config& config, const AlgorithmChoice& algorithms, bool whole_job) {
  PlanWishes wishes{.measured = algorithms.links()};
  if (whole_job) {
    wishes.forced = config.factors;
    wishes.several = searches_plans(config);
  }
  return wishes;
}

Group part_of(const Group& group, const collective::levels::Members& members) {
  Group part{group.id, {}, members.index};
  for (const int member : members.ranks) {
    part.ranks.push_back(group.ranks[static_cast<std::size_t>(member)]);
  }
  return part;
}

AllreduceWays ways_of(const Config& config, const AlgorithmChoice& algorithms,
                      const bootstrap::Topology& topology, const collective::Fabric& world) {
  const Group& group = world.group();
  AllreduceWays ways{.cluster = cluster_of(group, topology, algorithms.links())};
  if (world.capabilities().within_node) {
    ways.plans.push_back({{group.size(), 0, 0}});
    return ways;
  }
  Group last = group;  // the last stage's
  if (world.capabilities().plans == 0) {
    ways.plans.push_back({{group.size(), 0, ways.cluster.levels.size() - 1}});
  } else {
    // The fabric has the same ones.
    const std::vector<LevelPlan> plans =
        plan_levels(group, topology, wishes_for(config, algorithms, true)).value();
    for (const LevelPlan& plan : plans) ways.plans.push_back(plan.factors);
    last = part_of(group, plans.front().plan.stages.back().groups.front());
  }
  collective::AllreduceCall call;
  call.buffer.bytes = collective::levels::kShardBytes;
  ways.algorithm = algorithms.select_for(last)(call, last.size()).name;
  return ways;
}

}  // namespace roundelay::runtime
