"""An mpirun starts the ranks."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping
from functools import partial

from roundelay._internal import mpi_modules
from roundelay.run.modes import mpi
from roundelay.run.modes.mode import AGENT, Job, LaunchMode, Request, Starter

# The value "mpi" in one of these needs an MPI launch.
_TELLING = ("ROUNDELAY_BOOTSTRAP", "ROUNDELAY_CHANNEL", "ROUNDELAY_FABRIC")
_SHARED_BYTES_A_RANK = 1 << 20


class MpirunMode(LaunchMode):
    """The default on several machines, if this build can use its MPI."""

    flag = "--mpi"
    help = "start the ranks with mpirun (default on several hosts)"
    started_by = "mpirun"
    carries_functions = False
    is_ours = False
    places_torch = False

    def add_flags(self, group: argparse._ArgumentGroup) -> None:
        """Adds --mpi-args and --binding-args."""
        group.add_argument(
            "--mpi-args",
            type=shlex.split,
            default=[],
            metavar="ARGS",
            help='further arguments for mpirun, as one string: --mpi-args="--mca btl self,sm"',
        )
        group.add_argument(
            "--binding-args",
            type=shlex.split,
            metavar="ARGS",
            help='how mpirun binds ranks to CPUs, as one string: --binding-args="--bind-to socket"; '
            '"--bind-to none" works without MPI, too (default: an equal share of the CPUs, see --verbose)',
        )

    def own_flag(self, given: argparse.Namespace) -> str | None:
        """Returns --mpi-args or --binding-args; to bind nothing needs no mpirun."""
        if given.mpi_args:
            return "--mpi-args"
        return "--binding-args" if given.binding_args not in (None, mpi.NO_BINDING) else None

    def suits(self, request: Request) -> bool:
        """Returns whether the variables ask for MPI, or only mpirun knows the hosts; else where it is better.

        It is better on several machines, and on one whose ranks cannot share memory.
        """
        if any(request.environment.get(name) in ("mpi", "shm+mpi") for name in _TELLING):
            return True
        if not (request.one_machine or request.named):
            return True
        usable = bool(mpi_modules.built()) and bool(mpi.candidates(request.environment))
        return usable and not (request.one_machine and can_share_memory(request.given.num_proc))

    def find(self, environment: Mapping[str, str]) -> Starter:
        """Returns the installed mpirun. Intel's binds by itself."""
        found = mpi.find_mpirun(environment)
        return Starter(
            f"{found.flavour.value} {found.version} found {found.found}",
            found.flavour is mpi.Flavour.INTEL,
            partial(_command, found),
        )


def _command(mpirun: mpi.Mpirun, job: Job) -> list[str]:
    given = job.given
    return mpi.command_line(
        mpirun,
        mpi.MpirunJob(
            num_proc=job.num_proc,
            hosts=job.hosts,
            one_machine=job.one_machine,
            exports=job.exports,
            mpi_args=given.mpi_args,
            program=[*AGENT, *job.program],
            interfaces=job.interfaces,
            ssh=job.ssh,
            binding=given.binding_args or mpi.NO_BINDING,
            tcp=given.tcp,
        ),
    )


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
