"""Starts the ranks of a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import launch
from roundelay.run.modes.mpi import Mpirun

# Runs a module of benchmarks/workers on some ranks with a spec. Returns each rank's result; raises JobError.
Run = Callable[[str, int, dict[str, Any]], list[dict[str, Any]]]


def with_mpirun(mpirun: Mpirun, timeout: float) -> Run:
    """Start ranks with this mpirun, and end a job that takes longer than `timeout` seconds."""

    def run(worker: str, ranks: int, spec: dict[str, Any]) -> list[dict[str, Any]]:
        return launch.run_ranks(mpirun, f"benchmarks.workers.{worker}", ranks, spec, timeout)

    return run
