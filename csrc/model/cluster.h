// The machines that a prediction is for. All of model/ is pure. Times are seconds, sizes bytes, both as
// doubles: a prediction has neither overflow nor rounding to whole bytes.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace roundelay::model {

// Joins the parts of one level. Each part has one end of the link, such as the network card of a node, over
// which all its ranks send. A message of s bytes takes latency + s / bandwidth.
struct Link {
  double latency = 0;    // alpha: seconds from the start of a message to its first byte
  double bandwidth = 1;  // W: bytes a second that one end sends
  double reduce = 0;     // gamma: seconds in which a rank adds one received byte to its own
  int sharers = 1;       // c: the number of consecutive ranks that share one end
  friend bool operator==(const Link&, const Link&) = default;
};

// One level joins parts, each of which is a whole group of the level below. The lowest level joins ranks.
struct Level {
  int parts = 1;  // the number of parts in one group of this level
  Link link{};
};

// The machines of a job. They are alike, but nodes may have different numbers of ranks.
struct Cluster {
  std::vector<Level> levels{};  // innermost first; none: one rank
  // Bytes a second, read and written, of a pass over a rank's own memory.
  double memory_bandwidth = std::numeric_limits<double>::infinity();
  // The ranks of each node if nodes differ; then the first level has as many parts as the largest node.
  // Empty: all nodes have as many as the first level has parts.
  std::vector<int> nodes{};
};

// Returns the numbers of ranks of all parts that `level` joins: ranks for level 0, nodes for level 1, and the
// whole cluster for level levels.size().
std::vector<int> part_sizes(const Cluster& cluster, std::size_t level);

// Returns the number of ranks in the largest part that `level` joins.
int ranks_in_part(const Cluster& cluster, std::size_t level);

// Returns the number of ranks in the smallest node.
int least_in_node(const Cluster& cluster);

// Returns the number of all ranks.
inline int ranks(const Cluster& cluster) { return ranks_in_part(cluster, cluster.levels.size()); }

}  // namespace roundelay::model
