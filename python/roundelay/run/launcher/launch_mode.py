"""Chooses the launch mode: an mpirun starts the ranks, or a starter does without MPI."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from roundelay._internal import backend
from roundelay.run.errors import UsageError
from roundelay.run.launcher import mpi
from roundelay.run.launcher.hosts import Host

# The value "mpi" in one of these needs an MPI launch.
_TELLING = ("ROUNDELAY_BOOTSTRAP", "ROUNDELAY_CHANNEL", "ROUNDELAY_FABRIC")
_SHARED_BYTES_A_RANK = 1 << 20


def use_mpi(
    given: argparse.Namespace, one_machine: bool, named: list[Host], environment: Mapping[str, str]
) -> bool:
    """Returns whether mpirun starts the ranks.

    The user's flags decide. Without flags, mpirun starts the ranks of several machines if this build can use
    its MPI, and those of one machine if they also cannot share memory. Raises UsageError for flags that
    contradict each other or need a scheduler's hosts.
    """
    binding = given.binding_args not in (None, mpi.NO_BINDING)
    if given.gloo:
        for_mpirun = "--mpi-args" if given.mpi_args else "--binding-args" if binding else None
        if for_mpirun is not None:
            raise UsageError(f"{for_mpirun} are for mpirun, which --gloo does without")
        if not one_machine and not named:
            raise UsageError(
                "--gloo does not know the hosts of a scheduler's allocation: give -H or --hostfile"
            )
        return False
    if given.mpi or given.mpi_args or binding:
        return True
    if any(environment.get(name) == "mpi" for name in _TELLING) or not (one_machine or named):
        return True
    usable = backend.mpi_module() is not None and bool(mpi.candidates(environment))
    return usable and not (one_machine and can_share_memory(given.num_proc))


def can_share_memory(ranks: int) -> bool:
    """Returns whether this machine has as much shared memory as the fabric of so many ranks allocates."""
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
