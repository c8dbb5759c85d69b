// The operations as programs over a segment's slots. See program.h for the rules of writing one.
#pragma once

#include "collective/call.h"
#include "collective/program.h"
#include "collective/shm/rounds.h"

namespace roundelay::collective::shm {

// Every member stages its part, sums up its share of all parts, and takes the others' shares from them.
// Small ones: every member sums up all parts by itself, which saves a wait.
Program allreduce(Rounds& net, const AllreduceCall& call);
// Where all members reach each other's parts of a region: nothing is staged. Pieces of the sum go to whoever
// takes them first, which changes no bit of it; each is written to all members' parts.
Program allreduce_in_region(Rounds& net, const AllreduceCall& call);
// As recursive_doubling_allreduce, bit for bit: whole vectors from partner to partner.
Program adasum(Rounds& net, const AllreduceCall& call);
Program reduce_scatter(Rounds& net, const ReducescatterCall& call);
Program broadcast(Rounds& net, const BroadcastCall& call);
Program all_gather(Rounds& net, const AllgatherCall& call);
Program alltoall(Rounds& net, const AlltoallCall& call);
Program barrier(Rounds& net);

// `call` is as the present members see it. It and `net` outlive the program.
Program program_of(const Call& call, Rounds& net);

}  // namespace roundelay::collective::shm
