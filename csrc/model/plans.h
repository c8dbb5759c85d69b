// Chooses the stages of an allreduce over levels: those that are fastest by the cost formula (levels.h).
// Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "model/levels.h"

namespace roundelay::model {

// An allreduce over levels: its stages, and the size of its chunks.
struct LevelChoice {
  std::vector<Factor> factors;  // innermost first, each above 1; fewer than two: levels gain nothing
  std::size_t shard_bytes = 0;  // bytes of one chunk that a rank has in the last stage
  double seconds = 0;           // the time that the formula gives
};

// The limits of a choice.
struct Limits {
  int factors = 1;              // the most stages into which a level outside the nodes is cut
  int members = 0;              // the most members of a stage between nodes, if there is a way to have fewer
  std::size_t shard_bytes = 0;  // the most bytes of LevelChoice::shard_bytes, at least 16 KiB
};

// Returns the choice that takes the least time for `bytes` bytes; of equally fast ones that with the fewest
// stages. A stage may join neighbouring levels. A level between nodes may be cut into `limits.factors`
// stages, and into more if a stage would have more than `limits.members` members otherwise.
LevelChoice choose(const Cluster& cluster, std::size_t bytes, const Limits& limits);

// Returns all lists of factors among which choose() chooses, each with its best chunks, the fastest first.
std::vector<LevelChoice> ranked(const Cluster& cluster, std::size_t bytes, const Limits& limits);

}  // namespace roundelay::model
