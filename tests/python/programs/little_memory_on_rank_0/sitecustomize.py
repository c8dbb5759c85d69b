"""Lets rank 0 have no shared memory, whatever its program: its files may not be so long."""

from __future__ import annotations

import os
import resource

if "OMPI_COMM_WORLD_RANK" in os.environ:
    from mpi4py import MPI  # noqa: F401 (its own files are longer; returns when all ranks have come)
if os.environ.get("OMPI_COMM_WORLD_RANK") == "0":
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))
