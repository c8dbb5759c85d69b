"""CPU that a waiting rank burns."""

from __future__ import annotations

from typing import Any

from benchmarks import show
from benchmarks.table.line import Goal, Line
from benchmarks.table.run import Run

_LATE_S = 0.05
_LIMIT_S = 1e-3
_PEERS = {"gloo": "Gloo", "mpi": "MPI"}


def measure(run: Run, quick: bool) -> dict[str, Any]:
    """One job of 2 ranks."""
    return run("straggler", 2, {"late_s": _LATE_S, "repetitions": 3 if quick else 30})[0]


def lines(found: dict[str, Any]) -> list[Line]:
    """What waiting adds to a sleep of the same length."""
    sleep = found["cpu"]["sleep"]["median"]
    cost = {name: cpu["median"] - sleep for name, cpu in found["cpu"].items()}
    peers = [f"{text} {show.seconds_text(cost[name])}" for name, text in _PEERS.items() if name in cost]
    own = cost["roundelay"]
    work = f"CPU of a rank that waits {show.seconds_text(_LATE_S)} for another"
    goal = Goal(_LIMIT_S, at_least=False)
    return [Line(work, show.seconds_text(own), theirs=", ".join(peers), value=own, unit="s", goal=goal)]
