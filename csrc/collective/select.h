// Which algorithm a call takes: a pure function of operation, bytes and members, so that all members agree.
#pragma once

#include "collective/program.h"

namespace roundelay::collective {

// No message of the call is longer, as far as all its members know: SIZE_MAX for alltoall, of which each
// knows its own part.
std::size_t agreed_bytes(const Call& call);

using Select = const Algorithm& (*)(const Call& call, int size);

// The table in select.cc, with thresholds measured over MPI's shared memory transport.
const Algorithm& select_algorithm(const Call& call, int size);

}  // namespace roundelay::collective
