// A group on several nodes, each with as many members: an inner fabric within the node, an outer one between
// the nodes. Allreduce as in BlueConnect (Cho et al., MLSys 2019): a reduce-scatter inside, an allreduce of
// each member's shard with those that have its place on the other nodes, an all-gather inside; in chunks, so
// that the wire is busy while the nodes add up. Of S bytes and m nodes each node sends 2 (m-1)/m S.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "collective/fabric.h"

namespace roundelay::collective {

struct Levels {
  std::unique_ptr<Fabric> inner;  // the members on this node
  std::unique_ptr<Fabric> outer;  // those with this member's index in `inner`, one a node, the same order of
                                  // nodes for all
  std::unique_ptr<Fabric> flat;   // all: takes the operations that gain nothing from levels
};

// A member's part of a chunk, and how many of them may be on the wire at once; the same on all members. Over
// TCP the handshake of an MPI message waits behind the bytes that are queued already, so there must be much
// in flight, yet little of it in the last chunk: at 1 Gbit/s 8 of 256 KiB took 1.08 of a plain stream's time,
// 3 of 512 KiB 1.14 (2 nodes x 2 ranks, 25 MiB, python -m benchmarks.two_nodes).
struct LevelsCut {
  std::size_t shard_bytes = 256 << 10;  // a multiple of every element
  std::uint64_t most_across = 8;
};

// Between nodes partial sums travel in the buffer's type: a float is rounded once for the node and once in
// the end. Averages divide by the node's members first, so that equal parts come back unchanged and halves do
// not overflow. Whether two levels are used depends on the operation, not on the bytes: nor do sums.
std::unique_ptr<Fabric> make_two_level_fabric(Levels levels, LevelsCut cut = {});

// What such a fabric was made of, for calls of others while none of its own is in progress. Null: it is of
// another kind.
const Levels* levels_of(const Fabric& fabric);

}  // namespace roundelay::collective
