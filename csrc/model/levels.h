// The cost of an allreduce over levels: the one place of its formula. `roundelay plan` (over_levels()), the
// choice of plans (seconds_of(), plans.h) and the gate of strategies (seconds_of_way()) share it. Pure.
//
// Source: BlueConnect (Cho et al., MLSys 2019). For S bytes, p_i parts of level i, and the link's alpha_i,
// W_i and c_i (cluster.h), with one chunk:
//   2 sum_i [ (p_i - 1) alpha_i + (p_i - 1) / p_i * (S / prod_{j < i} p_j) / (W_i / c_i) ].
// A stage may also join a part of a level, or neighbouring levels. Its messages then cross the ends of inner
// levels' links, too (crossed_by()).
#pragma once

#include <cstddef>
#include <vector>

#include "model/cluster.h"
#include "model/collectives.h"
#include "model/stage.h"

namespace roundelay::model {

// The number of members of one stage's groups, and the levels that the stage joins: a part of one level, one
// level, or neighbouring levels at once.
struct Factor {
  int members = 1;
  std::size_t first_level = 0, last_level = 0;
  friend bool operator==(const Factor&, const Factor&) = default;
};

// A level's link that the messages of a stage cross.
struct Crossed {
  std::size_t level = 0;
  int in_part = 1;  // members of a group in one part, which share its end of the link and send each other
                    // nothing over it
};

// Returns the links that a stage's messages cross, innermost first: those of its levels, and those below up
// to the nodes' own. A message between nodes crosses no memory link.
std::vector<Crossed> crossed_by(const Factor& stage, const Cluster& cluster);

// Returns the cluster of these levels in which all ranks of a part share its end of the link.
Cluster with_shared_ends(std::vector<Level> levels);

// Returns the seconds of an allreduce of `bytes` bytes with these stages, innermost first. A chunk has
// `shard_bytes` bytes on a rank in the last stage. A stage waits for the messages of all links that it
// crosses and for the transfer that takes longest, and burdens each of these links with both. Each stage
// sends a message to each other member.
double seconds_of(const Cluster& cluster, const std::vector<Factor>& stages, std::size_t bytes,
                  std::size_t shard_bytes);

// Returns the seconds of an allreduce of `bytes` bytes with these stages, the last one by `algorithm`, and
// the others pairwise, in as many chunks as are best. Only the link that a stage keeps busy the longest
// counts.
double seconds_of_way(const Cluster& cluster, const std::vector<Factor>& stages, Algorithm algorithm,
                      double bytes);

// Returns the allreduce over all levels: reduce-scatters from the innermost level outwards, all-gathers back.
// Each stage counts for its own level's link alone. With `algorithm` kRing its time with one chunk is the
// paper's. A node sends as much as the others, whatever its number of ranks.
Program over_levels(const Cluster& cluster, Algorithm algorithm, double bytes);

// Returns the cluster in which `level` is cut into levels of `factors`, innermost first, with the same link.
// Their product is the level's number of parts.
Cluster split(const Cluster& cluster, std::size_t level, const std::vector<int>& factors);

// Returns the link that counts for a level if none was measured (`roundelay tune`): shared memory for level
// 0, a network of 10 Gbit/s for the others. The link of a rack counts as no wider than that of a node,
// because users name racks where their links are narrow.
Link usual_link(std::size_t level);

}  // namespace roundelay::model
