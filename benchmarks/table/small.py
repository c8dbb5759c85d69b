"""Blocking sums of 256 B to 4 KiB: in a row, and each after other work."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks import show
from benchmarks.bare import compiler
from benchmarks.table.result import Result
from benchmarks.table.run import Run
from benchmarks.table.samples import Samples, compare, tail

SIZES = (256, 1024, 4096)
HOWS = ("in a row", "after other work")
_PEERS = {"gloo": "Gloo", "mpi": "MPI"}


def measure(run: Run, quick: bool) -> dict[str, Any]:
    """Run one job of 2 ranks."""
    spec = {
        "sizes": SIZES[:1] if quick else SIZES,
        "calls": 20 if quick else 300,
        "repetitions": 2 if quick else 10,
        "bare": compiler() is not None,
    }
    return run("small", 2, spec)[0]


def work(size: int, how: str) -> str:
    """Name one size's calls."""
    return f"{show.size_text(size)} blocking, {how}, 2 ranks"


def _result(cell: dict[str, Any], how: str) -> Result:
    """Make a result. A repetition counts as the median of its calls; the tail is that of all calls."""
    calls, others = cell[how]["calls"], cell[how]["others"]
    medians = {name: [median(times) for times in all_] for name, all_ in calls.items()}
    samples = Samples(medians, others)
    own = [seconds for index in samples.kept for seconds in calls["roundelay"][index]]
    headline = f"{show.size_text(cell['bytes'])}, {how}, 2 ranks" if cell["bytes"] == SIZES[0] else ""
    late = tail(own) if own else None
    return compare(work(cell["bytes"], how), samples, _PEERS, tail=late, headline=headline)


def results(found: dict[str, Any]) -> list[Result]:
    """Make the results, first those of calls in a row."""
    return [_result(cell, how) for how in HOWS for cell in found["cells"]]
