// The machines that a prediction is for. All of model/ is pure. Times are seconds, sizes bytes, both as
// doubles: a prediction has neither overflow nor rounding to whole bytes.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace roundelay::model {

// How the parts of one level are joined. A message of s bytes takes latency + s / bandwidth.
struct Link {
  double latency = 0;    // alpha: seconds from the start of a message to its first byte
  double bandwidth = 1;  // W: bytes a second that one end sends
  double reduce = 0;     // gamma: seconds to add one byte that came to one's own
  // c: consecutive ranks that share one end, as those of a node share its network card.
  int sharers = 1;
};

// One level: so many parts of the level below are joined. The parts of the lowest level are ranks.
struct Level {
  int parts = 1;
  Link link{};
};

struct Cluster {
  std::vector<Level> levels{};  // innermost first; none: one rank
  // Bytes a second, read and written, of a pass over a rank's own memory.
  double memory_bandwidth = std::numeric_limits<double>::infinity();
  // Bytes a second between a GPU and its host, in one direction.
  double copy_bandwidth = std::numeric_limits<double>::infinity();
};

// Returns the number of ranks in one part of `level`; that of level levels.size() is the whole cluster.
int ranks_in_part(const Cluster& cluster, std::size_t level);

// Returns the number of all ranks.
inline int ranks(const Cluster& cluster) { return ranks_in_part(cluster, cluster.levels.size()); }

}  // namespace roundelay::model
