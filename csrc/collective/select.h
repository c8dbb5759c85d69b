// Which algorithm a call takes: a pure function of operation, bytes and members, so that all members agree.
#pragma once

#include "collective/program.h"

namespace roundelay::collective {

// No message of the call is longer, as far as all its members know: SIZE_MAX for alltoall, of which each
// knows its own part.
std::size_t agreed_bytes(const Call& call);

// In groups up to this all parts of an element come to one place, to be added up in the order of members:
// sums depend neither on the size nor on what is fused with what. Beyond it, too many partners at once.
inline constexpr int kOnePlaceMembers = 64;

using Select = const Algorithm& (*)(const Call& call, int size);

// The table in select.cc, with thresholds measured over MPI's shared memory transport.
const Algorithm& select_algorithm(const Call& call, int size);

}  // namespace roundelay::collective
