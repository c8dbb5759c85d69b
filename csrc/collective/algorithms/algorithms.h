// The algorithms, written once over Exchange. To add one: a file in this folder, a line here and a row in
// the table of collective/select.cc.
#pragma once

#include "collective/program.h"

namespace roundelay::collective {

// No transfers: one member, or no bytes.
Program single(Exchange& net, const Call& call);

// Allreduce. Bytes a member sends, rounds on the critical path:
// The parts of an element come to one place and are reduced in the order of members, in an accumulator wider
// than they are, with one rounding: the same bits whatever else is in the buffer, and from both.
Program direct_allreduce(Exchange& net, const AllreduceCall& call);  // (P-1) n,       1
Program pairwise_allreduce(Exchange& net,
                           const AllreduceCall& call);  // 2 (P-1)/P n,   2, with P-1 partners at once
// For groups too large for that. Partial sums travel, rounded.
Program ring_allreduce(Exchange& net, const AllreduceCall& call);  // 2 (P-1)/P n,    2 (P-1)
Program recursive_doubling_allreduce(Exchange& net,
                                     const AllreduceCall& call);  // n log2 P,       log2 P (+ 2 to fold)
// The latter is also Adasum, of whole vectors; halves travel as fp32 then, and are rounded once.

// Shards are cut into pieces of at most this. Measured over MPI's shared memory: 128 KiB to 512 KiB are alike
// within the noise, smaller ones cost context switches where ranks outnumber cores.
inline constexpr std::size_t kPieceBytes = 256 << 10;
// So many pieces are on their way at once: the wire is busy while one is reduced.
inline constexpr std::size_t kWindow = 4;

// Reduce-scatter as the first half of the pairwise allreduce: (P-1)/P n, 1.
Program pairwise_reduce_scatter(Exchange& net, const ReducescatterCall& call);

// All-gather and alltoall: every part goes straight to its place, a few partners at a time.
Program pairwise_all_gather(Exchange& net, const AllgatherCall& call);
Program pairwise_alltoall(Exchange& net, const AlltoallCall& call);

// Broadcast: segments down a binomial tree, log2 P steps.
Program binomial_tree_broadcast(Exchange& net, const BroadcastCall& call);

// Barrier: log2 P rounds, in round k with the neighbours at distance 2^k.
Program dissemination_barrier(Exchange& net);

}  // namespace roundelay::collective
