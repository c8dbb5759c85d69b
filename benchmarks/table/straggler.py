"""The CPU time of a waiting rank."""

from __future__ import annotations

from typing import Any

from benchmarks import show
from benchmarks.table.result import Result
from benchmarks.table.run import Run
from benchmarks.table.samples import Samples, compare

_LATE_S = 0.05
_PEERS = {"gloo": "Gloo", "mpi": "MPI"}
WAIT = f"CPU of a rank that waits {show.seconds_text(_LATE_S)} for another"


def measure(run: Run, quick: bool) -> dict[str, Any]:
    """Run one job of 2 ranks."""
    return run("straggler", 2, {"late_s": _LATE_S, "repetitions": 3 if quick else 30})[0]


def results(found: dict[str, Any]) -> list[Result]:
    """Make the result: the CPU time that waiting adds to a sleep of the same length."""
    bases = {name: "sleep" for name in found["cpu"] if name != "sleep"}
    samples = Samples(found["cpu"], found["others"], bases)
    return [compare(WAIT, samples, _PEERS, note="beyond a sleep as long")]
