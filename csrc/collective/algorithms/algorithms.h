// The algorithms, written once over Exchange. To add one: a file in this folder, a line here and a row in
// the table of collective/select.cc.
#pragma once

#include "collective/program.h"

namespace roundelay::collective {

// Allreduce. Bytes a member sends, steps on the critical path:
Program local_allreduce(Exchange& net, Call call);               // none: only scales; one member or no bytes
Program ring_allreduce(Exchange& net, Call call);                // 2 (P-1)/P n,    2 (P-1)
Program recursive_doubling_allreduce(Exchange& net, Call call);  // n log2 P,       log2 P (+ 2 to fold)

// The ring cuts shards into pieces of at most this. Measured over MPI's shared memory: 128 KiB to 512 KiB are
// alike within the noise, smaller ones cost context switches where ranks outnumber cores.
inline constexpr std::size_t kRingPieceBytes = 256 << 10;

// Broadcast: segments down a binomial tree, log2 P steps.
Program binomial_tree_broadcast(Exchange& net, Call call);

// Barrier: log2 P rounds, in round k with the neighbours at distance 2^k.
Program dissemination_barrier(Exchange& net, Call call);

}  // namespace roundelay::collective
