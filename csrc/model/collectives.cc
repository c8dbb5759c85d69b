#include "model/collectives.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

namespace roundelay::model {
namespace {

constexpr double kSegmentBytes = 64 << 10;  // of the pipelined tree

constexpr auto kNames = std::to_array<std::string_view>({
#define ALLREDUCE(Name, name, ...) name,
#define ALGORITHM(...)
#include "base/algorithms.def"
#undef ALLREDUCE
#undef ALGORITHM
});

Stage on_link(std::size_t level, double messages, double bytes, double reduced) {
  return {.level = level, .messages = messages, .bytes = bytes, .reduced = reduced};
}

int bit_width(int value) { return static_cast<int>(std::bit_width(static_cast<unsigned>(value))); }
int rounded_up_log2(int ranks) { return bit_width(ranks - 1); }

// Doubling and halving need a power of two. Ranks beyond it give a neighbour their vector, and get its
// result.
struct PowerOfTwo {
  explicit PowerOfTwo(int ranks) : rounds(bit_width(ranks) - 1), core(1 << rounds), folds(core != ranks) {}

  int rounds;
  int core;
  bool folds;
};

Stage recursive_doubling(int ranks, double bytes, std::size_t level) {
  const PowerOfTwo power(ranks);
  const int folds = power.folds ? 1 : 0;
  return on_link(level, power.rounds + 2 * folds, bytes * (power.rounds + 2 * folds),
                 bytes * (power.rounds + folds));
}

Stage halving_doubling(int ranks, double bytes, std::size_t level) {
  const PowerOfTwo power(ranks);
  const double half_way = bytes * (power.core - 1) / power.core;
  const int folds = power.folds ? 1 : 0;
  return on_link(level, 2 * power.rounds + 2 * folds, 2 * half_way + 2 * folds * bytes,
                 half_way + folds * bytes);
}

// An inner member takes two segments and sends one, then sends two: its end sends three times the vector.
Stage pipelined_tree(int ranks, double bytes, std::size_t level) {
  const int depth = bit_width(ranks) - 1;
  const double segments = std::max(1.0, std::ceil(bytes / kSegmentBytes));
  const double filling = 2 * (depth - 1) * bytes / segments;  // until the last member has the first segment
  return on_link(level, 2 * depth, (ranks > 2 ? 3 : 2) * bytes + filling, (ranks > 2 ? 2 : 1) * bytes);
}

}  // namespace

std::optional<Algorithm> algorithm_named(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Algorithm>(found - kNames.begin());
}

std::string_view name_of(Algorithm algorithm) { return kNames[static_cast<std::size_t>(algorithm)]; }

Stage allreduce(Algorithm algorithm, int ranks, double bytes, std::size_t level) {
  if (ranks < 2) return on_link(level, 0, 0, 0);
  const double others = ranks - 1;
  const double shards = bytes * others / ranks;
  switch (algorithm) {
    case Algorithm::kDirect:  // each rank sends everything to each other one
      return on_link(level, 1, others * bytes, others * bytes);
    case Algorithm::kPairwise:  // each rank sends each shard to the rank that sums it, and gets the sums the
                                // same way
      return on_link(level, 2, 2 * shards, shards);
    case Algorithm::kRing:
      return on_link(level, 2 * others, 2 * shards, shards);
    case Algorithm::kRecursiveDoubling:
      return recursive_doubling(ranks, bytes, level);
    case Algorithm::kHalvingDoubling:
      return halving_doubling(ranks, bytes, level);
    case Algorithm::kBinomialTree: {
      const double depth = rounded_up_log2(ranks);
      return on_link(level, 2 * depth, 2 * depth * bytes, depth * bytes);
    }
    case Algorithm::kPipelinedTree:
      break;
  }
  return pipelined_tree(ranks, bytes, level);
}

Stage reduce_scatter(Algorithm algorithm, int ranks, double bytes, std::size_t level) {
  if (ranks < 2) return on_link(level, 0, 0, 0);
  const double shards = bytes * (ranks - 1) / ranks;
  if (algorithm == Algorithm::kRing) return on_link(level, ranks - 1, shards, shards);
  if (algorithm == Algorithm::kHalvingDoubling) return on_link(level, rounded_up_log2(ranks), shards, shards);
  return on_link(level, 1, shards, shards);
}

Stage all_gather(Algorithm algorithm, int ranks, double bytes, std::size_t level) {
  Stage stage = reduce_scatter(algorithm, ranks, bytes, level);
  stage.reduced = 0;
  return stage;
}

Stage broadcast(int ranks, double bytes, std::size_t level) {
  const double depth = ranks < 2 ? 0 : rounded_up_log2(ranks);
  return on_link(level, depth, depth * bytes, 0);
}

std::optional<Stage> stage_of(std::string_view operation, std::string_view algorithm, int ranks,
                              double bytes) {
  if (operation == "allreduce") {
    const auto named = algorithm_named(algorithm);
    return named ? std::optional(allreduce(*named, ranks, bytes)) : std::nullopt;
  }
  if (operation == "reducescatter") {
    if (algorithm == "pairwise") return reduce_scatter(Algorithm::kPairwise, ranks, bytes);
    if (algorithm == "recursive_halving") return reduce_scatter(Algorithm::kHalvingDoubling, ranks, bytes);
  }
  if (operation == "allgather") {
    if (algorithm == "pairwise") return all_gather(Algorithm::kPairwise, ranks, bytes);
    if (algorithm == "recursive_doubling") return all_gather(Algorithm::kHalvingDoubling, ranks, bytes);
    if (algorithm == "ring") return all_gather(Algorithm::kRing, ranks, bytes);
  }
  if (operation == "broadcast" && algorithm == "binomial_tree") return broadcast(ranks, bytes);
  return std::nullopt;
}

Program flat(const Cluster& cluster, Algorithm algorithm, double bytes) {
  if (cluster.levels.empty()) return {};
  const std::size_t top = cluster.levels.size() - 1;
  const int all = ranks(cluster), inside = ranks_in_part(cluster, top);
  Stage stage = allreduce(algorithm, all, bytes, top);
  stage.whole = true;
  if (algorithm == Algorithm::kRing) {
    stage.senders = 1;
  } else {
    // This share of the bytes that a rank sends is for ranks of other parts.
    stage.bytes *= static_cast<double>(all - inside) / std::max(1, all - 1);
  }
  return {{stage}};
}

std::vector<std::vector<int>> factorisations(int ranks, int most) {
  std::vector<std::vector<int>> found;
  for (int first = 2; first < ranks && most > 1; ++first) {
    if (ranks % first != 0) continue;
    for (std::vector<int>& rest : factorisations(ranks / first, most - 1)) {
      rest.insert(rest.begin(), first);
      found.push_back(std::move(rest));
    }
  }
  if (ranks > 1) found.push_back({ranks});
  return found;
}

}  // namespace roundelay::model
