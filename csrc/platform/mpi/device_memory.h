// Whether this process's MPI takes memory on a GPU.
#pragma once

#include <string>

#include "platform/mpi/session.h"

namespace roundelay::mpi {

// Returns why it does not, with the cure; "" if it says that it does. It is asked by the function that Open
// MPI and MPICH have for that. An MPI that cannot be asked is not tried: one without CUDA would read a
// device's address as its own and end the process.
std::string why_no_device_memory(const Session& session);

}  // namespace roundelay::mpi
