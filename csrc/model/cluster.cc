#include "model/cluster.h"

#include <algorithm>
#include <numeric>

namespace roundelay::model {
namespace {

// Returns the number of parts of the level `begin` in one part that the level `end` joins, as levels state
// it.
int stated_parts(const Cluster& cluster, std::size_t begin, std::size_t end) {
  int parts = 1;
  for (std::size_t level = begin; level < end; ++level) parts *= cluster.levels[level].parts;
  return parts;
}

}  // namespace

std::vector<int> part_sizes(const Cluster& cluster, std::size_t level) {
  const std::size_t end = cluster.levels.size();
  if (level == 0) return std::vector<int>(static_cast<std::size_t>(ranks(cluster)), 1);
  if (cluster.nodes.empty()) {
    const auto parts = static_cast<std::size_t>(stated_parts(cluster, level, end));
    return std::vector<int>(parts, stated_parts(cluster, 0, level));
  }
  std::vector<int> sizes;
  const std::ptrdiff_t nodes = stated_parts(cluster, 1, level);
  for (auto node = cluster.nodes.begin(); node != cluster.nodes.end(); node += nodes) {
    sizes.push_back(std::accumulate(node, node + nodes, 0));
  }
  return sizes;
}

int ranks_in_part(const Cluster& cluster, std::size_t level) {
  if (level == 0 || cluster.nodes.empty()) return stated_parts(cluster, 0, level);
  return std::ranges::max(part_sizes(cluster, level));
}

int least_in_node(const Cluster& cluster) {
  if (cluster.levels.empty()) return 1;
  return cluster.nodes.empty() ? cluster.levels.front().parts : std::ranges::min(cluster.nodes);
}

}  // namespace roundelay::model
