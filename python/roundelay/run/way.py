"""Which way the ranks are started: by an mpirun, or by starter.py without MPI."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from roundelay import _backend
from roundelay.run import mpi
from roundelay.run.errors import UsageError

# What says "mpi" in one of these cannot do without.
_TELLING = ("ROUNDELAY_BOOTSTRAP", "ROUNDELAY_CHANNEL", "ROUNDELAY_FABRIC")
_SHARED_BYTES_A_RANK = 1 << 20


def use_mpi(given: argparse.Namespace, one_machine: bool, environment: Mapping[str, str]) -> bool:
    """Whether mpirun starts the ranks.

    As asked for; else on several machines, and on one where its ranks cannot share memory and there is an MPI
    that this build can use. Raises UsageError where only MPI could do what is asked for.
    """
    if given.gloo and not one_machine:
        raise UsageError("--gloo starts ranks on this machine only; use --mpi, or torchrun on each host")
    if given.gloo and given.mpi_args:
        raise UsageError("--mpi-args are for mpirun, which --gloo does without")
    if given.mpi or given.gloo:
        return bool(given.mpi)
    if not one_machine or given.mpi_args or any(environment.get(name) == "mpi" for name in _TELLING):
        return True
    usable = _backend.mpi_module() is not None and bool(mpi.candidates(environment))
    return usable and not can_share_memory(given.num_proc)


def can_share_memory(ranks: int) -> bool:
    """Whether this machine gives as much shared memory as the fabric of so many ranks allocates."""
    try:
        memory = os.memfd_create("roundelay-trial")
    except OSError:
        return False
    try:
        os.posix_fallocate(memory, 0, ranks * _SHARED_BYTES_A_RANK)
    except OSError:
        return False
    finally:
        os.close(memory)
    return True
