"""Blocking sums of 256 B to 4 KiB: in a row, and each after other work."""

from __future__ import annotations

from typing import Any

from benchmarks import show
from benchmarks.table.line import Goal, Line, faster
from benchmarks.table.run import Run

_SIZES = (256, 1024, 4096)
_TO_GLOO = 20.0
_AIM_S = 10e-6
_BEHIND_MPI_S = 8e-6
_P99_TO_MEDIAN = 10.0


def measure(run: Run, quick: bool) -> dict[str, Any]:
    """One job of 2 ranks."""
    spec = {
        "sizes": _SIZES[:1] if quick else _SIZES,
        "calls": 20 if quick else 300,
        "repetitions": 2 if quick else 10,
    }
    return run("small", 2, spec)[0]


def _cell_lines(cell: dict[str, Any], how: str) -> list[Line]:
    seconds = cell[how]
    own = seconds["roundelay"]
    work = f"{show.size_text(cell['bytes'])} blocking, {how}, 2 ranks"
    made = [faster(work, own["median"], "Gloo", seconds["gloo"]["median"], _TO_GLOO)]
    text = show.seconds_text(own["median"])
    if how == "in a row":
        goal = Goal(_AIM_S, at_least=False)
        made.append(Line(work, text, value=own["median"], unit="s", goal=goal))
    if "mpi" in seconds:
        theirs = seconds["mpi"]["median"]
        behind = Goal(_BEHIND_MPI_S, at_least=False) if cell["bytes"] == _SIZES[0] else None
        difference = own["median"] - theirs
        made.append(Line(work, text, "behind MPI", show.seconds_text(theirs), difference, "s", behind))
    tail, ratio = show.seconds_text(own["p99"]), own["p99"] / own["median"]
    goal = Goal(_P99_TO_MEDIAN, at_least=False)
    made.append(Line(f"{work}, p99", tail, "own median", text, ratio, "x", goal))
    return made


def lines(found: dict[str, Any]) -> list[Line]:
    """Median and 99th percentile, first of calls in a row."""
    hows = ("in a row", "after other work")
    return [line for how in hows for cell in found["cells"] for line in _cell_lines(cell, how)]
