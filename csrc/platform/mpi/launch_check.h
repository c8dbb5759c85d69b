// Detects a launcher that the MPI in use does not understand. Each rank would then believe that it is alone,
// and N trainings of one process would run instead of one training of N.
#pragma once

#include <optional>
#include <string>

#include "base/config.h"

namespace roundelay::mpi {

// Returns one line that names the launcher, the MPI and the cure; nothing if all is well. `size` is the size
// of MPI_COMM_WORLD, `library` the MPI's name and version.
std::optional<std::string> launch_problem(const Environment& environment, int size,
                                          const std::string& library);

}  // namespace roundelay::mpi
