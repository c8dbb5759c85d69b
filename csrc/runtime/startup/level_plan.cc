#include "runtime/startup/level_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "collective/tuning/select.h"
#include "model/plans.h"

namespace roundelay::runtime {
namespace {

namespace levels = collective::levels;
using levels::Tree;
using model::Cluster;
using model::Factor;
using model::LevelChoice;

constexpr std::size_t kUsualBytes = 25 << 20;  // the formula's buffer: PyTorch's default bucket
constexpr int kMostFactors = 3;                // of one level
constexpr std::size_t kMostOthers = 2;         // plans for a search, beside the one in use

// Returns the topology's levels with the group's members alone, counted by their indices in the group.
Tree tree_of(const Group& group, const bootstrap::Topology& topology) {
  Tree tree;
  for (const bootstrap::Level& level : topology.levels) {
    levels::Parts parts;
    for (const bootstrap::Part& part : level.parts) {
      std::vector<int> members;
      for (const int rank : part.ranks) {
        const auto found = std::ranges::lower_bound(group.ranks, rank);
        if (found != group.ranks.end() && *found == rank) {
          members.push_back(static_cast<int>(found - group.ranks.begin()));
        }
      }
      if (!members.empty()) parts.push_back(std::move(members));
    }
    std::ranges::sort(parts);  // in the order of first members
    tree.push_back(std::move(parts));
  }
  std::vector<int> all(group.ranks.size());
  std::iota(all.begin(), all.end(), 0);
  tree.push_back({std::move(all)});
  return tree;
}

Cluster cluster_of(const Tree& tree, const std::vector<model::Link>& measured) {
  std::vector<model::Level> levels;
  for (std::size_t level = 0; level < tree.size(); ++level) {
    std::size_t parts = 1;
    for (const auto& children : levels::children_of(tree, level)) {
      parts = std::max(parts, children.size());
    }
    levels.push_back({static_cast<int>(parts), measured.empty()
                                                   ? model::usual_link(level)
                                                   : measured[std::min(level, measured.size() - 1)]});
  }
  return model::with_shared_ends(std::move(levels));
}

// Returns "2 ranks per node, 3 nodes per rack, 2 racks".
std::string text_of(const Cluster& cluster, const bootstrap::Topology& topology) {
  std::string text;
  for (std::size_t level = 0; level < cluster.levels.size(); ++level) {
    const std::string& inner = level == 0 ? "rank" : topology.levels[level - 1].name;
    const int parts = cluster.levels[level].parts;
    text += (level == 0 ? "" : ", ") + std::to_string(parts) + " " + inner + (parts == 1 ? "" : "s");
    if (level < topology.levels.size()) text += " per " + topology.levels[level].name;
  }
  return text;
}

// Assigns the factors to the levels, from the inside out. Several may make up one level, and one may join
// several whole levels. Returns nothing if they do not fit.
std::optional<std::vector<Factor>> assigned(const Factors& forced, const Cluster& cluster) {
  const auto& levels = cluster.levels;
  const auto parts_of = [&](std::size_t level) { return static_cast<std::size_t>(levels[level].parts); };
  std::vector<Factor> factors;
  std::size_t level = 0, made = 1;  // the level that is being made up, and how much of it is
  for (const std::size_t each : forced.each) {
    if (each == 1) continue;
    while (level < levels.size() && made == parts_of(level)) ++level, made = 1;
    if (level == levels.size()) return std::nullopt;
    std::size_t last = level, whole = parts_of(level);
    while (made == 1 && whole < each && last + 1 < levels.size()) whole *= parts_of(++last);
    const bool joins = last > level;
    if (joins ? whole != each : whole % (made * each) != 0) return std::nullopt;
    factors.push_back({static_cast<int>(each), level, last});  // `each` divides a number of parts
    made = joins ? parts_of(last) : made * each;
    level = last;
  }
  while (level < levels.size() && made == parts_of(level)) ++level, made = 1;
  if (level < levels.size()) return std::nullopt;
  return factors;
}

// Returns the tree that has one level for each factor.
Tree tree_of_factors(const Tree& levels, const std::vector<Factor>& factors) {
  Tree tree;
  std::size_t joined = 1;  // of the parts below the factor's level, by the level's factors so far
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const Factor& factor = factors[i];
    const bool begins = i == 0 || factors[i - 1].last_level != factor.last_level;
    const auto members = static_cast<std::size_t>(factor.members);
    joined = begins ? members : joined * members;
    const bool ends = i + 1 == factors.size() || factors[i + 1].first_level != factor.first_level;
    if (ends) {
      tree.push_back(levels[factor.last_level]);
    } else {
      tree.push_back(levels::split_level(levels, factor.last_level, joined)[factor.last_level]);
    }
  }
  return tree;
}

// Returns whether both have the same stages inside the nodes.
bool alike_in_nodes(const std::vector<Factor>& one, const std::vector<Factor>& other) {
  const auto inside = [](const std::vector<Factor>& factors) {
    return std::ranges::find_if(factors, [](const Factor& factor) { return factor.last_level > 0; });
  };
  return std::equal(one.begin(), inside(one), other.begin(), inside(other));
}

// Returns whether a choice has stages of as many members: it is then the same plan, as a level of one part
// joins nothing.
bool has(const std::vector<LevelChoice>& choices, const std::vector<Factor>& factors) {
  return std::ranges::any_of(choices, [&](const LevelChoice& one) {
    return std::ranges::equal(one.factors, factors, {}, &Factor::members, &Factor::members);
  });
}

Result<std::vector<LevelChoice>> forced(const FactorLists& lists, const Cluster& cluster,
                                        const bootstrap::Topology& topology) {
  std::vector<LevelChoice> choices;
  for (const Factors& each : lists.each) {
    auto factors = assigned(each, cluster);
    if (!factors) {
      return Status::invalid("ROUNDELAY_FACTORS=" + each.text() + " does not fit " +
                             text_of(cluster, topology) +
                             ": give, from the inside out, factors that make up each of these numbers");
    }
    if (!choices.empty() && !alike_in_nodes(*factors, choices.front().factors)) {
      return Status::invalid("ROUNDELAY_FACTORS=" + lists.text() +
                             ": its lists must begin with the same factors inside the nodes");
    }
    if (!has(choices, *factors)) choices.push_back({std::move(*factors), levels::kShardBytes, 0});
  }
  return choices;
}

Result<std::vector<LevelChoice>> chosen(const Cluster& cluster, const PlanWishes& wishes) {
  model::Limits limits{wishes.measured.empty() ? 1 : kMostFactors, collective::kOnePlaceMembers,
                       levels::kShardBytes};
  std::vector<LevelChoice> choices = {model::choose(cluster, kUsualBytes, limits)};
  if (!wishes.several || choices.front().factors.size() < 2) return choices;
  limits.factors = kMostFactors;
  for (LevelChoice& other : model::ranked(cluster, kUsualBytes, limits)) {
    if (choices.size() > kMostOthers) break;
    const bool alike = alike_in_nodes(other.factors, choices.front().factors);
    if (alike && !has(choices, other.factors)) choices.push_back(std::move(other));
  }
  return choices;
}

}  // namespace

// Among more than kOnePlaceMembers a larger shard would take another algorithm, and so another order of sums,
// which would depend on the bucket.
std::size_t LevelPlan::most_shard_bytes() const {
  const bool same_sums = plan.stages.back().members <= collective::kOnePlaceMembers;
  return same_sums && shard_bytes == levels::kShardBytes ? levels::kLongShardBytes : shard_bytes;
}

std::string LevelPlan::stages_text(const std::string& inside, const std::string& between) const {
  std::string text;
  for (std::size_t stage = 0; stage < factors.size(); ++stage) {
    text += (text.empty() ? "" : " x ") + std::to_string(factors[stage].members) + " (" +
            (in_node(stage) ? inside : between) + ")";
  }
  const auto kib = [&](std::size_t shard) {
    return std::to_string(levels::chunk_bytes_of(plan, shard) >> 10U);
  };
  text += ", in chunks of " + kib(shard_bytes);
  if (most_shard_bytes() > shard_bytes) text += " to " + kib(most_shard_bytes());
  return text + " KiB";
}

Cluster cluster_of(const Group& group, const bootstrap::Topology& topology,
                   const std::vector<model::Link>& measured) {
  return cluster_of(tree_of(group, topology), measured);
}

Result<std::vector<LevelPlan>> plan_levels(const Group& group, const bootstrap::Topology& topology,
                                           const PlanWishes& wishes) {
  const Tree levels = tree_of(group, topology);
  const Cluster cluster = cluster_of(levels, wishes.measured);
  auto choices =
      wishes.forced.each.empty() ? chosen(cluster, wishes) : forced(wishes.forced, cluster, topology);
  if (!choices.ok()) return choices.status();
  std::vector<LevelPlan> plans;
  for (LevelChoice& choice : *choices) {
    LevelPlan& made = plans.emplace_back();
    made.tree = tree_of_factors(levels, choice.factors);
    made.plan = levels::plan_of_member(made.tree, group.index);
    // The usual links are too coarse to tell what is best for two levels; this was measured (LevelsCut).
    if (!wishes.measured.empty() || choice.factors.size() > 2) made.shard_bytes = choice.shard_bytes;
    made.factors = std::move(choice.factors);
  }
  return plans;
}

}  // namespace roundelay::runtime
