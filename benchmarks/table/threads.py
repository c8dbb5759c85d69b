"""Blocking sums of several threads of a rank at once."""

from __future__ import annotations

from typing import Any

from benchmarks.table.result import Result
from benchmarks.table.run import Run
from benchmarks.table.samples import Samples, compare

THREADS = 4
ONE = "one thread"
SUM = f"256 B blocking, by {THREADS} threads at once, a sum, 2 ranks"


def measure(run: Run, quick: bool) -> dict[str, Any]:
    """Run one job of 2 ranks."""
    spec = {"threads": [1, THREADS], "calls": 120 if quick else 3000, "repetitions": 3 if quick else 20}
    return run("threads", 2, spec)[0]


def results(found: dict[str, Any]) -> list[Result]:
    """Make the result: the time of a sum of all threads' sums, beside that of one thread's.

    Threads that take turns switch once for each sum at least: the floor is such a switch, of as many threads.
    """
    samples = Samples(found["seconds"], found["others"])
    return [
        compare(SUM, samples, {"1": ONE}, own=str(THREADS), floor=("switch", "a switch to the next thread"))
    ]
