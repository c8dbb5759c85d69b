// A group on several nodes, each with as many members: an inner fabric within the node, an outer one between
// the nodes. Allreduce as in BlueConnect (Cho et al., MLSys 2019): a reduce-scatter inside, an allreduce of
// each member's shard with those that have its place on the other nodes, an all-gather inside; in chunks, so
// that the wire is busy while the nodes add up. Of S bytes and m nodes each node sends 2 (m-1)/m S.
#pragma once

#include <memory>

#include "collective/fabric.h"

namespace roundelay::collective {

struct Levels {
  std::unique_ptr<Fabric> inner;  // the members on this node
  std::unique_ptr<Fabric> outer;  // those with this member's index in `inner`, one a node, the same order of
                                  // nodes for all
  std::unique_ptr<Fabric> flat;   // all: takes the operations that gain nothing from levels
};

// Between nodes partial sums travel in the buffer's type: a float is rounded once for the node and once in
// the end. Averages divide by the node's members first, so that equal parts come back unchanged and halves do
// not overflow. Whether two levels are used depends on the operation, not on the bytes: nor do sums.
std::unique_ptr<Fabric> make_two_level_fabric(Levels levels);

}  // namespace roundelay::collective
