// The data plane of a group on several nodes, each with as many members. It has an inner fabric within the
// node and an outer one between the nodes. An allreduce goes as in BlueConnect (Cho et al., MLSys 2019): a
// reduce-scatter inside, an allreduce of each member's shard with the members that have its index on the
// other nodes, an all-gather inside. It is cut into chunks, so that the wire is busy while the nodes add up.
// Each of m nodes sends 2 (m-1)/m S bytes for an allreduce of S bytes.
//
// The fabric's regions and counters are the inner fabric's. The steps inside work in place in a region.
// Either fabric may have levels itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "collective/fabric.h"

namespace roundelay::collective {

struct Levels {
  std::unique_ptr<Fabric> inner;  // connects the members on this node
  std::unique_ptr<Fabric> outer;  // connects those with this member's index in `inner`, one a node; the order
                                  // of nodes is the same for all
  std::unique_ptr<Fabric> flat;   // connects all; takes the operations that gain nothing from levels
};

// The size of a member's shard of a chunk, and how many shards may travel between nodes at once. The same on
// all members. Over TCP the handshake of an MPI message waits for the bytes that are queued before it, so
// that many bytes must be on their way, but few of them in the last chunk: at 1 Gbit/s 8 shards of 256 KiB
// took 1.08 of a plain stream's time, 3 of 512 KiB took 1.14 (2 nodes x 2 ranks, 25 MiB, python -m
// benchmarks.two_nodes).
struct LevelsCut {
  std::size_t shard_bytes = 256 << 10;  // a multiple of every element's size
  std::uint64_t most_across = 8;
};

// Makes the fabric. Between nodes partial sums travel in the buffer's type: a float is rounded once for the
// node and once in the end. Averages divide by the node's members first, so that equal parts come back
// unchanged and halves do not overflow. Whether a call goes over two levels depends on its operation and not
// on its bytes, so that sums do not depend on them either.
std::unique_ptr<Fabric> make_two_level_fabric(Levels levels, LevelsCut cut = {});

}  // namespace roundelay::collective
