"""The variables by which launchers tell a process its place in their job. Pure; a new launcher is a row here.

Users set some of MPI's, such as OMPI_MCA_*, themselves: those are none of these.
"""

from __future__ import annotations

from typing import NamedTuple

Names = tuple[str, ...]


class LauncherVariables(NamedTuple):
    """A launcher, or a family of them. Where there are several names, the first one that is set counts."""

    name: str
    is_mpi: bool = False  # its processes are those of an MPI
    abi: str = ""  # of the MPI, as mpi_modules.py names it; empty: it may be any
    marks: Names = ()  # each process of an MPI's job has one of these
    rank: Names = ()
    size: Names = ()
    local_rank: Names = ()
    local_size: Names = ()
    job: Names = ()  # the name of the job
    allocation: Names = ()  # a scheduler sets it where mpirun gets other machines from it
    prefixes: Names = ()  # variables that begin so belong to one process of one job


LAUNCHERS = (
    LauncherVariables(
        "Open MPI",
        is_mpi=True,
        abi="openmpi",
        marks=("OMPI_COMM_WORLD_SIZE",),
        rank=("OMPI_COMM_WORLD_RANK",),
        size=("OMPI_COMM_WORLD_SIZE",),
        local_rank=("OMPI_COMM_WORLD_LOCAL_RANK",),
        local_size=("OMPI_COMM_WORLD_LOCAL_SIZE",),
        job=("OMPI_MCA_ess_base_jobid",),  # of version 4
        prefixes=("OMPI_COMM_",),
    ),
    LauncherVariables(
        "PMIx (prterun, srun)",
        is_mpi=True,
        marks=("PMIX_RANK",),
        rank=("PMIX_RANK",),
        job=("PMIX_NAMESPACE",),
        prefixes=("PMIX_",),
    ),
    LauncherVariables(
        "MPICH, Intel MPI",
        is_mpi=True,
        abi="mpich",
        marks=("PMI_RANK", "MPI_LOCALNRANKS"),
        rank=("PMI_RANK",),
        size=("PMI_SIZE",),
        local_rank=("MPI_LOCALRANKID",),
        local_size=("MPI_LOCALNRANKS", "I_MPI_INFO_LOCAL_SIZE"),
        job=("PMI_JOBID",),
        prefixes=("PMI_", "MPI_LOCAL"),
    ),
    LauncherVariables(
        "MVAPICH",
        is_mpi=True,
        abi="mpich",
        marks=("MV2_COMM_WORLD_SIZE",),
        rank=("MV2_COMM_WORLD_RANK",),
        size=("MV2_COMM_WORLD_SIZE",),
        prefixes=("MV2_COMM_",),
    ),
    LauncherVariables("Slurm", rank=("SLURM_PROCID",), allocation=("SLURM_JOB_ID",)),
    LauncherVariables("PBS", allocation=("PBS_NODEFILE",)),
    LauncherVariables("LSF", allocation=("LSB_JOBID",)),
    LauncherVariables("Grid Engine", allocation=("PE_HOSTFILE",)),
    LauncherVariables("Cobalt", allocation=("COBALT_NODEFILE",)),
)
# torchrun's, which users and other launchers set, too: RANK may be that of another job.
TORCH = LauncherVariables(
    "torchrun",
    rank=("RANK",),
    size=("WORLD_SIZE",),
    local_rank=("LOCAL_RANK",),
    local_size=("LOCAL_WORLD_SIZE",),
    prefixes=("TORCHELASTIC_",),
)


def names(field: str, mpi_only: bool = False) -> Names:
    """Returns the variables of one field of all launchers but torchrun, in the order of the rows."""
    return tuple(
        name for launcher in LAUNCHERS if launcher.is_mpi or not mpi_only for name in getattr(launcher, field)
    )
