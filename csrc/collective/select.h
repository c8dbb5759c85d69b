// The choice of a call's algorithm. It depends only on the operation, its bytes and the number of members, so
// that all members agree.
#pragma once

#include "collective/program.h"

namespace roundelay::collective {

// Returns a bound for the bytes of the call's messages, the same on all members. SIZE_MAX for an alltoall:
// each member knows only its own part.
std::size_t agreed_bytes(const Call& call);

// The most members of a group in which all parts of an element come to one place and are added in the order
// of members, so that sums depend neither on the size nor on fusion. Larger groups would have too many
// partners.
inline constexpr int kOnePlaceMembers = 64;

// Returns the algorithm for a call as the present members see it (present.h); `size` is their number.
using Select = const Algorithm& (*)(const Call& call, int size);

// Chooses by the table in select.cc, whose thresholds were measured over MPI's shared memory transport.
const Algorithm& select_algorithm(const Call& call, int size);

}  // namespace roundelay::collective
