// Who reports to whom in a lane: a tree of its members, in which orders go down. Pure.
//
// In a small group all members report to the first one, the coordinator. In a large one, each member reports
// to the first member of its node, its leader, and leaders report to each other along the tree of nodes
// (lock/node_tree.h). So no member has more neighbours than its node has members, and the fan-out.
#pragma once

#include <map>
#include <numeric>
#include <span>
#include <vector>

namespace roundelay::negotiate {

class ReportTree {
 public:
  // `nodes`: the node of each member, any numbers; none: all report to the first member. `member`: this
  // rank's index in the group. Nodes have at most `fan_out` nodes below them, and a coordinator that has at
  // most so many members on other nodes needs no leaders.
  ReportTree(std::span<const int> nodes, int size, int member, int fan_out);

  // Returns the member to which this one reports; -1 on the coordinator.
  [[nodiscard]] int above() const { return above_; }
  // Returns the members (ascending) that report to this one.
  [[nodiscard]] const std::vector<int>& below() const { return below_; }
  // Returns whether a member of this one's subtree has members below it.
  [[nodiscard]] bool leads(int member) const { return subtrees_.contains(member); }
  // Returns a member of this one's subtree and all below it, ascending. Nothing for others.
  [[nodiscard]] std::span<const int> subtree(int member) const;

 private:
  void build(std::span<const int> nodes, int fan_out);

  const int self_;
  int above_ = -1;
  std::vector<int> below_;
  std::vector<int> members_;                  // all, ascending
  std::map<int, std::vector<int>> subtrees_;  // of the leaders in this member's subtree
};

}  // namespace roundelay::negotiate
