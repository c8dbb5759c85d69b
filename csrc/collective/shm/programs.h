// The operations as programs over a segment's slots. See program.h for the rules of writing one.
#pragma once

#include "collective/fabric.h"
#include "collective/program.h"
#include "collective/shm/rounds.h"

namespace roundelay::collective::shm {

// Every member stages its part, sums up its share of all parts, and takes the others' shares from them.
// Small ones: every member sums up all parts by itself, which saves a wait.
Program allreduce(Rounds& net, const Call& call);
// Where all members reach each other's parts of a region: nothing is staged. Pieces of the sum go to whoever
// takes them first, which changes no bit of it; each is written to all members' parts.
Program allreduce_in_region(Rounds& net, Call call);
// As recursive_doubling_allreduce, bit for bit: whole vectors from partner to partner.
Program adasum(Rounds& net, Call call);
Program reduce_scatter(Rounds& net, Call call);
Program broadcast(Rounds& net, Call call);
Program all_gather(Rounds& net, Call call);
Program alltoall(Rounds& net, Call call);
Program barrier(Rounds& net, Call call);

// `call` as the present members see it.
Program program_of(const Call& call, Rounds& net);

}  // namespace roundelay::collective::shm
