// The programs of fabric shm, which move bytes through a segment's slots. program.h has the rules for
// authors.
#pragma once

#include <vector>

#include "collective/call.h"
#include "collective/program/program.h"
#include "collective/shm/rounds.h"

namespace roundelay::collective::shm {

// Every member stages its part, reduces its share of all parts, and copies the other shares from the members
// that have reduced them. In a small call every member reduces all parts itself, which saves a wait. A buffer
// in a heap is not staged; if all are, they are reduced where they lie.
Program allreduce(Rounds& net, const AllreduceCall& call);
// Reduces buffers in a region, where members reach each other's parts: nothing is staged.
Program allreduce_in_region(Rounds& net, const AllreduceCall& call);
// Does this member's work of an allreduce whose buffers all members reach: `parts`. All have staged round 0.
// The results are there when all have reduced it.
void allreduce_placed(Rounds& net, const AllreduceCall& call, std::vector<std::byte*> parts);
// Passes whole vectors from partner to partner. Gives the bits of recursive_doubling_allreduce.
Program adasum(Rounds& net, const AllreduceCall& call);
// Every member stages its part and reduces its shard out of all parts.
Program reduce_scatter(Rounds& net, const ReducescatterCall& call);
// Every member reduces its shard in place in a region, out of all members' parts.
Program reduce_scatter_in_region(Rounds& net, const ReducescatterCall& call);
// The root stages its bytes, and the others copy them.
Program broadcast(Rounds& net, const BroadcastCall& call);
// Every member stages its part, and copies the others' parts.
Program all_gather(Rounds& net, const AllgatherCall& call);
// Every member copies the others' parts straight from their regions.
Program all_gather_in_region(Rounds& net, const AllgatherCall& call);
// Every member stages its parts for the others side by side, and copies those for it from the others.
Program alltoall(Rounds& net, const AlltoallCall& call);
Program barrier(Rounds& net);

// Return the program of a call of each kind. A new kind without one does not compile.
inline Program run(Rounds& net, const AllreduceCall& call) {
  if (call.reduce_op == ReduceOp::kAdasum) return adasum(net, call);
  return call.buffer.region != nullptr ? allreduce_in_region(net, call) : allreduce(net, call);
}
inline Program run(Rounds& net, const BroadcastCall& call) { return broadcast(net, call); }
inline Program run(Rounds& net, const BarrierCall& /*call*/) { return barrier(net); }
inline Program run(Rounds& net, const AllgatherCall& call) {
  return call.region != nullptr ? all_gather_in_region(net, call) : all_gather(net, call);
}
inline Program run(Rounds& net, const AlltoallCall& call) { return alltoall(net, call); }
inline Program run(Rounds& net, const ReducescatterCall& call) {
  return call.region != nullptr ? reduce_scatter_in_region(net, call) : reduce_scatter(net, call);
}

// Returns the program of a call, as the present members see it. A region of the call has the parts of all
// members of the group. `call` and `net` outlive it.
Program program_of(const Call& call, Rounds& net);

}  // namespace roundelay::collective::shm
