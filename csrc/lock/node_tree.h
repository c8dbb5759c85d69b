// The nodes of a group as a tree, along whose edges announcements travel. Pure.
//
// Node i, by the order of the nodes' first members, has the nodes fan_out * i + 1 and so on below it. The
// first member of a node speaks for the node.
#pragma once

#include <span>
#include <vector>

namespace roundelay::lock {

// An edge of a node's own.
struct NodeEdge {
  int speaker = 0;           // the member that speaks for the node at the other end
  std::vector<bool> beyond;  // by member: it is on that node, or on one behind it
};

class NodeTree {
 public:
  static constexpr int kFanOut = 8;

  // `nodes`: the node of each member, any numbers; `member`: this rank's index in the group.
  NodeTree(std::span<const int> nodes, int member, int fan_out = kFanOut);

  // Return the members of this member's node, ascending; who speaks for it; and its edges.
  [[nodiscard]] const std::vector<int>& own() const { return own_; }
  [[nodiscard]] int speaker() const { return own_.front(); }
  [[nodiscard]] const std::vector<NodeEdge>& edges() const { return edges_; }

 private:
  std::vector<int> own_;
  std::vector<NodeEdge> edges_;
};

}  // namespace roundelay::lock
