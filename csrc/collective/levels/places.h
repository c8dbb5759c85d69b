// Places of members in nodes of different sizes. Pure.
//
// A member's place is its number in its node. A place that is on every node has peers on all of them, which
// are a group between the nodes. So a node with more members than another one has some without peers, and
// sends no more than the others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "collective/levels/member_plan.h"
#include "collective/levels/plan.h"

namespace roundelay::collective::levels {

// Returns the number of places that are on every node. `nodes` are the innermost parts of a tree.
inline int places_of(const Parts& nodes) {
  const auto smallest = std::ranges::min_element(nodes, {}, &std::vector<int>::size);
  return static_cast<int>(smallest->size());
}

// Returns the members of `rank`'s place, by nodes. It is alone if its place is not on every node.
inline Members peers_of(const Parts& nodes, int rank) {
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const auto found = std::ranges::find(nodes[node], rank);
    const auto place = static_cast<std::size_t>(found - nodes[node].begin());
    if (place >= static_cast<std::size_t>(places_of(nodes))) continue;
    Members peers{{}, static_cast<int>(node)};
    for (const std::vector<int>& ranks : nodes) peers.ranks.push_back(ranks[place]);
    return peers;
  }
  return {{rank}, 0};
}

}  // namespace roundelay::collective::levels
