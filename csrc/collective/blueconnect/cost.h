// Computes how long an allreduce over levels takes, and chooses the factors that make it shortest. It uses
// the cost formula of BlueConnect (Cho et al., MLSys 2019), with links that the ranks of a part share. Pure.
//
// Each level has a link out of every part that it joins: out of a rank inside the node, out of a node inside
// the rack, and so on. A stage whose groups have k members, with v bytes on each rank, takes
// 2 ((k-1) alpha + (k-1)/k v / W): W is the narrowest link on the way, divided by the ranks that send over
// it. Stages work on different chunks at the same time, but share the links that they have in common.
#pragma once

#include <cstddef>
#include <vector>

namespace roundelay::collective::blueconnect {

// The cost of messages on a link.
struct Link {
  double alpha = 0;      // seconds for each message
  double bandwidth = 0;  // bytes a second, for all ranks that share the link together
  friend bool operator==(const Link&, const Link&) = default;
};

// One level of the topology. Levels are listed innermost first; the first one is inside the nodes.
struct LevelCost {
  std::size_t parts = 1;  // the number of parts in each part of the next level; the largest if they differ
  Link link{};            // the link out of each part
};

// The number of members of one stage's groups, and the levels that the stage joins: a part of one level, one
// level, or neighbouring levels at once.
struct Factor {
  std::size_t members = 1;
  std::size_t first_level = 0, last_level = 0;
  friend bool operator==(const Factor&, const Factor&) = default;
};

// An allreduce over levels: its stages, and the size of its chunks.
struct Choice {
  std::vector<Factor> factors;  // innermost first, each above 1; fewer than two: levels gain nothing
  std::size_t shard_bytes = 0;  // bytes of one chunk that a rank has in the last stage
  double seconds = 0;           // the time that the formula gives
};

// The default of shard_bytes with two levels, and its maximum in a choice. With larger shards the last stage
// might take another algorithm, and so another order of sums, for more than 64 parts (collective/select.h).
inline constexpr std::size_t kShardBytes = 256 << 10;

// Returns the seconds of an allreduce of `bytes` bytes with these stages and chunks.
double seconds_of(const std::vector<LevelCost>& levels, const std::vector<Factor>& factors, std::size_t bytes,
                  std::size_t shard_bytes);

// Returns the fastest choice for `bytes` bytes. It may join neighbouring levels in one stage, and cut a level
// outside the nodes into at most `most_factors` stages, or more so that none has over 64 members. If choices
// are equally fast, it takes the one with the fewest stages.
Choice choose(const std::vector<LevelCost>& levels, std::size_t bytes, std::size_t most_factors);

// Returns all lists of factors among which choose() chooses, each with its best chunks, the fastest first.
std::vector<Choice> ranked(const std::vector<LevelCost>& levels, std::size_t bytes, std::size_t most_factors);

// Returns the link that counts for a level if none was measured (`roundelay tune`): shared memory for level
// 0, a network of 10 Gbit/s for the others. The link of a rack counts as no wider than that of a node,
// because users name racks where their links are narrow.
Link usual_link(std::size_t level);

}  // namespace roundelay::collective::blueconnect
