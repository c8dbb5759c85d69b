// Trees of members, and the programs that go along any tree in segments: sums go up, results go down.
// Segments follow each other, so that inner members send one while they receive the next.
#pragma once

#include <cstddef>
#include <vector>

#include "collective/call.h"
#include "collective/program/program.h"

namespace roundelay::collective {

// A member's place in a tree. All members make the tree with the same size and root.
struct Tree {
  int parent = -1;            // -1: this member is the root
  std::vector<int> children;  // sums are added in this order; the last one has the largest subtree
};

// The depth is log2 of the size, rounded up, and the root has as many children. Sums have the same bits as
// those of recursive doubling, if the root is member 0.
Tree binomial_tree(int size, int index, int root);
// No member has more than two children. The depth is log2 of the size, rounded down.
Tree binary_tree(int size, int index, int root);

// The root gets the sum of all members' vectors, segment by segment, and sends it down.
Program tree_allreduce(Exchange& net, const AllreduceCall& call, Tree tree, std::size_t segment_bytes);
// The root's bytes go down.
Program tree_broadcast(Exchange& net, const BroadcastCall& call, Tree tree, std::size_t segment_bytes);

}  // namespace roundelay::collective
