#include "model/plans.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace roundelay::model {
namespace {

constexpr std::size_t kLeastShard = 16 << 10;
constexpr double kClearly = 1 - 1e-9;  // rounding errors make no choice
constexpr int kMostFactors = 3;        // of a level that has to be cut

using FactorLists = std::vector<std::vector<int>>;

// Returns the ways to make up a level's parts, outside the nodes, those with large first factors first.
// Groups with more members than the limit would reduce by doubling, which sends each byte several times.
FactorLists cuts_of(int parts, const Limits& limits) {
  const int most = parts > limits.members ? std::max(limits.factors, kMostFactors) : limits.factors;
  FactorLists lists = factorisations(parts, most);
  std::ranges::reverse(lists);
  const auto fits = [&](const auto& list) { return std::ranges::max(list) <= limits.members; };
  if (std::ranges::any_of(lists, fits)) std::erase_if(lists, std::not_fn(fits));
  return lists;
}

// Appends all lists of factors for the levels from `level` on.
void list_choices(const Cluster& cluster, std::size_t level, const Limits& limits, std::vector<Factor>& begun,
                  std::vector<std::vector<Factor>>& lists) {
  if (level == cluster.levels.size()) {
    lists.push_back(begun);
    return;
  }
  int members = 1;
  for (std::size_t last = level; last < cluster.levels.size(); ++last) {
    members *= cluster.levels[last].parts;
    if (last > level && members > limits.members) break;
    const bool one_stage = level == 0 || last > level || members == 1;
    for (const std::vector<int>& cut : one_stage ? FactorLists{{members}} : cuts_of(members, limits)) {
      const std::size_t before = begun.size();
      for (const int factor : cut) {
        if (factor > 1) begun.push_back({factor, level, last});
      }
      list_choices(cluster, last + 1, limits, begun, lists);
      begun.resize(before);
    }
  }
}

// Returns the choice of these factors with the chunks that make it fastest.
LevelChoice with_best_chunks(const Cluster& cluster, std::vector<Factor> factors, std::size_t bytes,
                             std::size_t most_shard) {
  LevelChoice best;
  for (std::size_t shard = most_shard; shard >= kLeastShard; shard /= 2) {
    const double seconds = seconds_of(cluster, factors, bytes, shard);
    if (best.shard_bytes == 0 || seconds < best.seconds * kClearly) best = {{}, shard, seconds};
  }
  best.factors = std::move(factors);
  return best;
}

// Returns each list of factors with its best chunks, those with the fewest stages first.
std::vector<LevelChoice> all_choices(const Cluster& cluster, std::size_t bytes, const Limits& limits) {
  std::vector<std::vector<Factor>> lists;
  std::vector<Factor> none;
  list_choices(cluster, 0, limits, none, lists);
  std::ranges::stable_sort(lists, {}, &std::vector<Factor>::size);
  std::vector<LevelChoice> choices;
  choices.reserve(lists.size());
  for (std::vector<Factor>& factors : lists) {
    choices.push_back(with_best_chunks(cluster, std::move(factors), bytes, limits.shard_bytes));
  }
  return choices;
}

}  // namespace

LevelChoice choose(const Cluster& cluster, std::size_t bytes, const Limits& limits) {
  LevelChoice best;
  for (LevelChoice& one : all_choices(cluster, bytes, limits)) {
    if (best.shard_bytes == 0 || one.seconds < best.seconds * kClearly) best = std::move(one);
  }
  return best;
}

std::vector<LevelChoice> ranked(const Cluster& cluster, std::size_t bytes, const Limits& limits) {
  std::vector<LevelChoice> choices = all_choices(cluster, bytes, limits);
  std::ranges::stable_sort(choices, {}, &LevelChoice::seconds);
  return choices;
}

}  // namespace roundelay::model
