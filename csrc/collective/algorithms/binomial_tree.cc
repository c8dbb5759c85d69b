// Broadcast and allreduce along a binomial tree. They take few steps, and the root serves log2 P members.
#include "collective/algorithms/algorithms.h"
#include "collective/algorithms/tree.h"

namespace roundelay::collective {
namespace {

constexpr std::size_t kSegmentBytes = 256 << 10;

}  // namespace

Program binomial_tree_broadcast(Exchange& net, const BroadcastCall& call) {
  return tree_broadcast(net, call, binomial_tree(net.size(), net.index(), call.root), kSegmentBytes);
}

Program binomial_tree_allreduce(Exchange& net, const AllreduceCall& call) {
  return tree_allreduce(net, call, binomial_tree(net.size(), net.index(), 0), kSegmentBytes);
}

}  // namespace roundelay::collective
