#include "platform/mpi/launch_check.h"

#include <cstdlib>

namespace roundelay::mpi {
namespace {

struct Launcher {
  const char* count_variable;  // holds how many processes it started
  const char* name;
};

// SLURM_NTASKS is also set without srun (by salloc and sbatch). srun's steps have a variable of their own.
constexpr Launcher kLaunchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun"},
    {"PMI_SIZE", "the mpirun of MPICH, Intel MPI or MVAPICH (Hydra), or srun with PMI"},
    {"SLURM_STEP_NUM_TASKS", "srun"},
};

}  // namespace

std::optional<std::string> launch_problem(const Environment& environment, int size,
                                          const std::string& library) {
  if (size > 1) return std::nullopt;
  for (const Launcher& launcher : kLaunchers) {
    const std::optional<std::string> count = environment(launcher.count_variable);
    if (!count || std::atoi(count->c_str()) <= 1) continue;
    return std::string("this process is one of ") + *count + " started by " + launcher.name + " (" +
           launcher.count_variable + "=" + *count + "), but roundelay uses " + library +
           ", which sees only 1: start it with the mpirun of that MPI, or rebuild roundelay with the "
           "launcher's MPI"
           " first on PATH";
  }
  return std::nullopt;
}

}  // namespace roundelay::mpi
