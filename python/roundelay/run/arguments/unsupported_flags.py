"""Flags of `horovodrun` without a meaning here. The parser refuses or ignores them, and says why."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from roundelay.run.errors import UsageError

# Maps flags to the reason why a job that needs them cannot start.
REFUSED = {
    ("--jsrun",): "there is no jsrun launcher; within an LSF allocation, --mpi lets mpirun find the hosts",
}

_TOPOLOGY = "the topology decides how many levels an operation takes"
_TRIALS = "--autotune tries the few sizes that a cost model prefers, each for as many steps"
_MPI_THREADS = "the thread level that MPI grants decides"
# Maps a flag to the number of its values, and the reason why a job runs as well without it.
NO_EFFECT = {
    "--disable-cache": (0, "nothing is checked before the start, so no result is kept"),
    "--hierarchical-allreduce": (0, _TOPOLOGY),
    "--no-hierarchical-allreduce": (0, _TOPOLOGY),
    "--hierarchical-allgather": (0, _TOPOLOGY),
    "--no-hierarchical-allgather": (0, _TOPOLOGY),
    "--torus-allreduce": (0, _TOPOLOGY),
    "--no-torus-allreduce": (0, _TOPOLOGY),
    "--autotune-warmup-samples": (1, _TRIALS),
    "--autotune-bayes-opt-max-samples": (1, _TRIALS),
    "--autotune-gaussian-process-noise": (1, _TRIALS),
    "--mpi-threads-disable": (0, _MPI_THREADS),
    "--no-mpi-threads-disable": (0, _MPI_THREADS),
    "--num-nccl-streams": (1, "each process set has a stream of its own on a device"),
    "--thread-affinity": (1, "a rank's threads share the CPUs that the rank is given (--binding-args)"),
    "--gloo-timeout-seconds": (1, "--start-timeout and ROUNDELAY_PROGRESS_TIMEOUT are the time limits"),
}


class _Refuse(argparse.Action):
    """Raises UsageError with the reason, which is the action's `const`."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        _namespace: argparse.Namespace,
        _values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        raise UsageError(f"{option_string}: {self.const}")


class _Note(argparse.Action):
    """Records a flag without effect in `no_effect`."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        _values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        noted = getattr(namespace, self.dest)
        setattr(namespace, self.dest, {**noted, option_string: self.const})


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the flags, unseen in the help. The result's `no_effect` has those given, with the reason."""
    for flags, why in REFUSED.items():
        parser.add_argument(*flags, action=_Refuse, nargs=0, const=why, help=argparse.SUPPRESS)
    for flag, (values, why) in NO_EFFECT.items():
        parser.add_argument(
            flag,
            action=_Note,
            dest="no_effect",
            nargs=values or 0,
            const=why,
            default={},
            help=argparse.SUPPRESS,
        )
