// Broadcast and allreduce along a binary tree, in segments so short that all of the tree's levels are busy at
// once. No member serves more than two others.
#include "collective/algorithms/algorithms.h"
#include "collective/algorithms/tree.h"

namespace roundelay::collective {
namespace {

constexpr std::size_t kSegmentBytes = 64 << 10;

}  // namespace

Program pipelined_tree_broadcast(Exchange& net, const BroadcastCall& call) {
  return tree_broadcast(net, call, binary_tree(net.size(), net.index(), call.root), kSegmentBytes);
}

Program pipelined_tree_allreduce(Exchange& net, const AllreduceCall& call) {
  return tree_allreduce(net, call, binary_tree(net.size(), net.index(), 0), kSegmentBytes);
}

}  // namespace roundelay::collective
