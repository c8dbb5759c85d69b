// Finds out whether this process's MPI takes memory on a GPU.
#pragma once

#include <string>

#include "platform/mpi/session.h"

namespace roundelay::mpi {

// Returns the reason and the cure if MPI does not take such memory; "" if it says that it does. Open MPI and
// MPICH have a function that answers this. An MPI without such a function is not tried: if it had no CUDA, it
// would read a device's address as its own and end the process.
std::string why_no_device_memory(const Session& session);

}  // namespace roundelay::mpi
