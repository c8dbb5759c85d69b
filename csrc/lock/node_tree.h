// The nodes of a group as a tree, along whose edges announcements travel. Pure.
//
// Node i, by the order of the nodes' first members, has the nodes fan_out * i + 1 and so on below it. The
// first member of a node leads the node.
#pragma once

#include <span>
#include <vector>

namespace roundelay::lock {

// The nodes of a group, numbered in the order of their first members.
struct NodeNumbers {
  // `nodes`: the node of each member, any numbers.
  explicit NodeNumbers(std::span<const int> nodes);

  std::vector<int> first;      // by number: the node's first member
  std::vector<int> of_member;  // by member: its node's number
};

// Returns the node above this one, which is not node 0.
[[nodiscard]] constexpr int node_above(int node, int fan_out) { return (node - 1) / fan_out; }

// An edge of a node's own.
struct NodeEdge {
  int leader = 0;            // the member that leads the node at the other end
  std::vector<bool> beyond;  // by member: it is on that node, or on one behind it
  friend bool operator==(const NodeEdge&, const NodeEdge&) = default;
};

class NodeTree {
 public:
  // `nodes`: the node of each member, any numbers; `member`: this rank's index in the group.
  NodeTree(std::span<const int> nodes, int member, int fan_out);

  // Return the members of this member's node, ascending; who leads it; and its edges.
  [[nodiscard]] const std::vector<int>& own() const { return own_; }
  [[nodiscard]] int leader() const { return own_.front(); }
  [[nodiscard]] const std::vector<NodeEdge>& edges() const { return edges_; }

 private:
  std::vector<int> own_;
  std::vector<NodeEdge> edges_;
};

}  // namespace roundelay::lock
