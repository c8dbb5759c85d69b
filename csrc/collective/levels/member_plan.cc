#include "collective/levels/member_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace roundelay::collective::levels {
namespace {

// Bounds the number of units, so that a unit times the elements of a chunk fits into 64 bits. Beyond it, cuts
// that should be at one place may be a unit apart: groups then work on so little that it does not matter.
constexpr std::size_t kMostUnits = std::size_t{1} << 32U;

// Returns the least number of units that all stages but the last one cut evenly. The last stage's shards are
// its fabric's own business.
std::size_t units_of(const Tree& tree) {
  std::size_t units = 1;
  for (std::size_t level = 0; level + 1 < tree.size(); ++level) {
    std::size_t multiple = 1;
    for (const std::vector<std::size_t>& joined : children_of(tree, level)) {
      multiple = std::min(std::lcm(multiple, joined.size()), kMostUnits);
    }
    if (multiple > kMostUnits / units) return kMostUnits;
    units *= multiple;
  }
  return units;
}

int index_of(const std::vector<int>& ranks, int rank) {
  const auto found = std::ranges::find(ranks, rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

// Adds a share, and its group unless an earlier share has the same one.
void add_share(MemberStage& stage, Members group, const ElementRange& range,
               std::vector<ElementRange> shards) {
  const auto known = std::ranges::find(stage.groups, group);
  const auto index = static_cast<std::size_t>(known - stage.groups.begin());
  if (known == stage.groups.end()) stage.groups.push_back(std::move(group));
  stage.shares.push_back({index, range, std::move(shards)});
}

// Returns the stage as a member of no group sees it.
MemberStage member_stage(const Stage& stage, std::size_t ranks) {
  MemberStage made{.level = stage.level, .groups = {}, .shares = {}};
  std::vector<bool> seen(ranks, false);
  for (const StageGroup& group : stage.groups) {
    made.members = std::max(made.members, static_cast<int>(group.ranks.size()));
    made.even = made.even && group.ranks.size() == stage.groups.front().ranks.size();
    for (const int rank : group.ranks) seen[static_cast<std::size_t>(rank)] = true;
  }
  made.even = made.even && std::ranges::find(seen, false) == seen.end();
  return made;
}

// Returns the ranges that the member holds after the stage, beside each other's order.
std::vector<ElementRange> held_after(const MemberStage& stage) {
  std::vector<ElementRange> held;
  for (const Share& share : stage.shares) {
    const auto own = static_cast<std::size_t>(stage.groups[share.group].index);
    if (share.shards[own].count > 0) held.push_back(share.shards[own]);
  }
  return held;
}

}  // namespace

bool MemberPlan::even() const {
  return std::ranges::all_of(stages, [](const MemberStage& stage) {
    return stage.even && stage.groups.size() == 1 && stage.shares.size() == 1;
  });
}

MemberPlan plan_of_member(const Tree& tree, int rank) {
  MemberPlan made;
  made.units = units_of(tree);
  std::vector<ElementRange> held = {{0, made.units}};
  for (const Stage& stage : plan(tree, made.units)) {
    MemberStage own = member_stage(stage, tree.back().front().size());
    made.last_range = 0;
    for (const StageGroup& group : stage.groups) {
      made.last_range = std::max(made.last_range, group.range.count);
      const int index = index_of(group.ranks, rank);
      if (index >= 0) add_share(own, {group.ranks, index}, group.range, group.shards);
    }
    if (own.shares.empty()) {
      for (const ElementRange& range : held) add_share(own, {{rank}, 0}, range, {range});
    }
    held = held_after(own);
    made.stages.push_back(std::move(own));
  }
  return made;
}

MemberPlan even_plan(const std::vector<Members>& groups) {
  MemberPlan made;
  for (std::size_t i = 0; i + 1 < groups.size(); ++i) {
    made.units *= static_cast<std::size_t>(groups[i].size());
  }
  ElementRange range{0, made.units};
  for (const Members& group : groups) {
    const auto size = static_cast<std::size_t>(group.size());
    Share share{0, range, {}};
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t begin = range.begin + range.count * i / size;
      share.shards.push_back({begin, range.begin + range.count * (i + 1) / size - begin});
    }
    made.last_range = range.count;
    range = share.shards[static_cast<std::size_t>(group.index)];
    made.stages.push_back({made.stages.size(), group.size(), true, {group}, {std::move(share)}});
  }
  return made;
}

}  // namespace roundelay::collective::levels
