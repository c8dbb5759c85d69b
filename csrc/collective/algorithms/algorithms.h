// The algorithms, written once over Exchange. To add one: a file in this folder, a line here, and a row in
// base/algorithms.def.
#pragma once

#include "collective/program/program.h"

namespace roundelay::collective {

// Copies and scales without transfers. It carries out calls of one member, and allreduces of no bytes.
Program single(Exchange& net, const Call& call);

// Allreduce of n bytes by P members. Each comment says how many bytes a member sends, and how many rounds are
// on the critical path: bytes, rounds.
//
// The first two bring all parts of an element to one place, which reduces them in the order of members, in an
// accumulator wider than they are, with one rounding. Both give the same bits, whatever else is in the
// buffer.
Program direct_allreduce(Exchange& net, const AllreduceCall& call);  // (P-1) n,       1
Program pairwise_allreduce(Exchange& net,
                           const AllreduceCall& call);  // 2 (P-1)/P n,   2, with P-1 partners at once
// The next two are for larger groups. Partial sums travel, rounded.
Program ring_allreduce(Exchange& net, const AllreduceCall& call);  // 2 (P-1)/P n,    2 (P-1)
Program recursive_doubling_allreduce(Exchange& net,
                                     const AllreduceCall& call);  // n log2 P,       log2 P (+ 2: doubling.h)
// Recursive doubling also carries out Adasum, of whole vectors. Halves then travel as fp32 and are rounded
// once.
Program halving_doubling_allreduce(Exchange& net,
                                   const AllreduceCall& call);               // 2 (P-1)/P n,    2 log2 P (+ 2)
Program binomial_tree_allreduce(Exchange& net, const AllreduceCall& call);   // at most n log2 P,  2 log2 P
Program pipelined_tree_allreduce(Exchange& net, const AllreduceCall& call);  // at most 3 n,       2 log2 P
// Recursive doubling, halving and doubling, and the binomial tree add the same pairs of partial sums, so that
// their sums have the same bits.

// Shards are cut into pieces of at most this. Measured over MPI's shared memory: 128 KiB to 512 KiB are alike
// within the noise, smaller ones cost context switches where ranks outnumber cores.
inline constexpr std::size_t kPieceBytes = 256 << 10;
// The number of pieces of a shard that are on their way at once, so that the link is busy while one is
// reduced.
inline constexpr std::size_t kWindow = 4;

// Reduce-scatter is the first half of the pairwise allreduce: (P-1)/P n, 1.
Program pairwise_reduce_scatter(Exchange& net, const ReducescatterCall& call);
// For larger groups: (P-1)/P n, log2 P (+ 2, and then n more). Partial sums travel, rounded.
Program recursive_halving_reduce_scatter(Exchange& net, const ReducescatterCall& call);

// All-gather and alltoall send every part straight to its place, to a few partners at a time.
Program pairwise_all_gather(Exchange& net, const AllgatherCall& call);
Program pairwise_alltoall(Exchange& net, const AlltoallCall& call);
// These pass parts on: log2 P (+ 2) rounds, and P-1 rounds with two partners.
Program recursive_doubling_all_gather(Exchange& net, const AllgatherCall& call);
Program ring_all_gather(Exchange& net, const AllgatherCall& call);

// Broadcast sends segments down a tree, in log2 P steps. The root sends each segment to log2 P members, or to
// two.
Program binomial_tree_broadcast(Exchange& net, const BroadcastCall& call);
Program pipelined_tree_broadcast(Exchange& net, const BroadcastCall& call);

// A barrier takes log2 P rounds. In round k a member sends to one neighbour at distance 2^k, and receives
// from the other one.
Program dissemination_barrier(Exchange& net);
inline Program dissemination_barrier(Exchange& net, const BarrierCall& /*call*/) {
  return dissemination_barrier(net);
}

}  // namespace roundelay::collective
