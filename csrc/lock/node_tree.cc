#include "lock/node_tree.h"

#include <algorithm>
#include <cstddef>
#include <map>

namespace roundelay::lock {
namespace {

// Returns the neighbour of `from` on the way to another node.
int next_hop(int from, int to, int fan_out) {
  for (int node = to; node > from; node = node_above(node, fan_out)) {
    if (node_above(node, fan_out) == from) return node;
  }
  return node_above(from, fan_out);
}

}  // namespace

NodeNumbers::NodeNumbers(std::span<const int> nodes) {
  std::map<int, int> numbers;
  for (int at = 0; at < static_cast<int>(nodes.size()); ++at) {
    const auto [found, is_new] = numbers.try_emplace(nodes[static_cast<std::size_t>(at)], std::ssize(first));
    if (is_new) first.push_back(at);
    of_member.push_back(found->second);
  }
}

NodeTree::NodeTree(std::span<const int> nodes, int member, int fan_out) {
  const auto [first, of_member] = NodeNumbers(nodes);
  const int self = of_member[static_cast<std::size_t>(member)];
  std::map<int, NodeEdge> edges;  // by the node at the other end
  for (int at = 0; at < static_cast<int>(nodes.size()); ++at) {
    const int node = of_member[static_cast<std::size_t>(at)];
    if (node == self) {
      own_.push_back(at);
      continue;
    }
    const int hop = next_hop(self, node, fan_out);
    NodeEdge& edge = edges[hop];
    edge.leader = first[static_cast<std::size_t>(hop)];
    edge.beyond.resize(nodes.size());
    edge.beyond[static_cast<std::size_t>(at)] = true;
  }
  for (auto& [node, edge] : edges) edges_.push_back(std::move(edge));
}

}  // namespace roundelay::lock
