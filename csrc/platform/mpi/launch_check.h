// Whether this process was started by a launcher that the MPI in use does not understand: then every rank
// would believe to be alone, and N trainings of one process would run instead of one of N.
#pragma once

#include <optional>
#include <string>

#include "base/config.h"

namespace roundelay::mpi {

// One line naming the launcher and the MPI, with the cure; nothing if all is well. `size`: MPI_COMM_WORLD's.
std::optional<std::string> launch_problem(const Environment& environment, int size,
                                          const std::string& library);

}  // namespace roundelay::mpi
