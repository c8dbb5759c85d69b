#include "runtime/startup/node_group.h"

#include <algorithm>

namespace roundelay::runtime {

std::vector<int> nodes_of(const Fabrics& fabrics, const Group& group) {
  const bool shares = fabrics.why_not_shm(group).empty();
  std::vector<int> nodes;
  for (const int rank : group.ranks) {
    const auto same = [&](int other) {
      return shares ? fabrics.node_of(other) == fabrics.node_of(rank) : other == rank;
    };
    nodes.push_back(*std::ranges::find_if(group.ranks, same));
  }
  return nodes;
}

std::optional<Group> node_group(const Fabrics& fabrics, const Group& group) {
  const std::vector<int> nodes = nodes_of(fabrics, group);
  Group own{group.id, {}, 0};
  for (std::size_t at = 0; at < nodes.size(); ++at) {
    if (nodes[at] != nodes[static_cast<std::size_t>(group.index)]) continue;
    if (static_cast<int>(at) == group.index) own.index = own.size();
    own.ranks.push_back(group.ranks[at]);
  }
  if (own.size() == 1) return std::nullopt;
  return own;
}

}  // namespace roundelay::runtime
