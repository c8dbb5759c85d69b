#include "collective/blueconnect/cost.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "collective/select.h"

namespace roundelay::collective::blueconnect {
namespace {

constexpr std::size_t kLeastShard = 16 << 10;
constexpr double kClearly = 1 - 1e-9;  // rounding errors make no choice

constexpr std::size_t kMostFactors = 3;                 // of a level that has to be cut
constexpr std::size_t kMostMembers = kOnePlaceMembers;  // of a stage between nodes, where there is a choice

using FactorLists = std::vector<std::vector<std::size_t>>;

// Appends all ways to write `count` as an ordered product of at most `most` factors above 1.
void factorise(std::size_t count, std::size_t most, std::vector<std::size_t>& begun, FactorLists& lists) {
  begun.push_back(count);
  lists.push_back(begun);
  begun.pop_back();
  if (most == 1) return;
  for (std::size_t factor = count / 2; factor >= 2; --factor) {
    if (count % factor != 0) continue;
    begun.push_back(factor);
    factorise(count / factor, most - 1, begun, lists);
    begun.pop_back();
  }
}

// Returns the ways to make up a level's parts, outside the nodes. Larger groups than `kMostMembers` would
// reduce by doubling, which sends each byte several times.
FactorLists cuts_of(std::size_t parts, std::size_t most) {
  FactorLists lists;
  std::vector<std::size_t> begun;
  factorise(parts, parts > kMostMembers ? std::max(most, kMostFactors) : most, begun, lists);
  const auto fits = [](const auto& list) { return std::ranges::max(list) <= kMostMembers; };
  if (std::ranges::any_of(lists, fits)) std::erase_if(lists, std::not_fn(fits));
  return lists;
}

// The time of one stage on one chunk, with which it burdens the links.
class ChunkTime {
 public:
  explicit ChunkTime(const std::vector<LevelCost>& levels) : levels_(levels), of_link_(levels.size(), 0) {}

  // Adds a stage that reduces and gathers `bytes` bytes on each rank.
  void add(const Factor& factor, double bytes) {
    const auto members = static_cast<double>(factor.members);
    const bool whole_levels = members_of(factor.first_level, factor.last_level + 1) == members;
    double latency = 0, transfer = 0;
    for (std::size_t level = 0; level <= factor.last_level; ++level) {
      if (level == 0 && factor.first_level > 0) continue;  // a message between nodes crosses no memory link
      // The members that share this level's link, and the messages of each of them over it.
      const double behind = level < factor.first_level ? 1 : members_of(factor.first_level, level);
      double messages = 0;
      if (level >= factor.first_level) {
        messages = whole_levels ? behind * (static_cast<double>(levels_[level].parts) - 1) : members - 1;
      }
      const double ranks = members_of(0, level);
      const Link& link = levels_[level].link;
      const double alphas = 2 * messages * link.alpha;
      const double moving = 2 * ranks * bytes * (members - behind) / members / link.bandwidth;
      of_link_[level] += alphas + moving;
      latency += alphas;
      transfer = std::max(transfer, moving);
    }
    all_stages_ += latency + transfer;
  }

  [[nodiscard]] double all_stages() const { return all_stages_; }
  [[nodiscard]] double busiest_link() const { return *std::ranges::max_element(of_link_); }

 private:
  [[nodiscard]] double members_of(std::size_t begin, std::size_t end) const {
    double members = 1;
    for (std::size_t level = begin; level < end; ++level) {
      members *= static_cast<double>(levels_[level].parts);
    }
    return members;
  }

  const std::vector<LevelCost>& levels_;
  std::vector<double> of_link_;  // by level
  double all_stages_ = 0;
};

// Appends all lists of factors for the levels from `level` on.
void list_choices(const std::vector<LevelCost>& levels, std::size_t level, std::size_t most_factors,
                  std::vector<Factor>& begun, std::vector<std::vector<Factor>>& lists) {
  if (level == levels.size()) {
    lists.push_back(begun);
    return;
  }
  std::size_t members = 1;
  for (std::size_t last = level; last < levels.size(); ++last) {
    members *= levels[last].parts;
    if (last > level && members > kMostMembers) break;
    const bool one_stage = level == 0 || last > level;
    const FactorLists cuts = one_stage ? FactorLists{{members}} : cuts_of(members, most_factors);
    for (const std::vector<std::size_t>& cut : cuts) {
      const std::size_t before = begun.size();
      for (const std::size_t factor : cut) {
        if (factor > 1) begun.push_back({factor, level, last});
      }
      list_choices(levels, last + 1, most_factors, begun, lists);
      begun.resize(before);
    }
  }
}

// Returns the choice of these factors with the chunks that make it fastest.
Choice with_best_chunks(const std::vector<LevelCost>& levels, std::vector<Factor> factors,
                        std::size_t bytes) {
  Choice best;
  for (std::size_t shard = kShardBytes; shard >= kLeastShard; shard /= 2) {
    const double seconds = seconds_of(levels, factors, bytes, shard);
    if (best.shard_bytes == 0 || seconds < best.seconds * kClearly) best = {{}, shard, seconds};
  }
  best.factors = std::move(factors);
  return best;
}

// Returns each list of factors with its best chunks, those with the fewest stages first.
std::vector<Choice> all_choices(const std::vector<LevelCost>& levels, std::size_t bytes,
                                std::size_t most_factors) {
  std::vector<std::vector<Factor>> lists;
  std::vector<Factor> none;
  list_choices(levels, 0, most_factors, none, lists);
  std::ranges::stable_sort(lists, {}, &std::vector<Factor>::size);
  std::vector<Choice> choices;
  choices.reserve(lists.size());
  for (std::vector<Factor>& factors : lists) {
    choices.push_back(with_best_chunks(levels, std::move(factors), bytes));
  }
  return choices;
}

}  // namespace

double seconds_of(const std::vector<LevelCost>& levels, const std::vector<Factor>& factors, std::size_t bytes,
                  std::size_t shard_bytes) {
  const auto whole = static_cast<double>(bytes);
  double chunk = factors.size() < 2 ? whole : static_cast<double>(shard_bytes);
  for (std::size_t i = 0; i + 1 < factors.size(); ++i) chunk *= static_cast<double>(factors[i].members);
  chunk = std::min(chunk, whole);
  ChunkTime time(levels);
  double held = chunk;
  for (const Factor& factor : factors) {
    time.add(factor, held);
    held /= static_cast<double>(factor.members);
  }
  return time.all_stages() + (whole / chunk - 1) * time.busiest_link();
}

Choice choose(const std::vector<LevelCost>& levels, std::size_t bytes, std::size_t most_factors) {
  Choice best;
  for (Choice& one : all_choices(levels, bytes, most_factors)) {
    if (best.shard_bytes == 0 || one.seconds < best.seconds * kClearly) best = std::move(one);
  }
  return best;
}

std::vector<Choice> ranked(const std::vector<LevelCost>& levels, std::size_t bytes,
                           std::size_t most_factors) {
  std::vector<Choice> choices = all_choices(levels, bytes, most_factors);
  std::ranges::stable_sort(choices, {}, &Choice::seconds);
  return choices;
}

Link usual_link(std::size_t level) {
  if (level == 0) return {1e-6, 6e9};
  return {level == 1 ? 1e-5 : 2e-5, 1.25e9};
}

}  // namespace roundelay::collective::blueconnect
