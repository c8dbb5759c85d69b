"""The training thread's time for submitting a gradient."""

from __future__ import annotations

from typing import Any

from benchmarks import show
from benchmarks.table.line import Goal, Line
from benchmarks.table.run import Run

_LIMIT_S = 3e-6


def measure(run: Run, quick: bool) -> dict[str, Any]:
    """One job of 2 ranks."""
    return run("submit", 2, {"gradients": 161, "repetitions": 3 if quick else 100})[0]


def lines(found: dict[str, Any]) -> list[Line]:
    """A call, and what the hook adds to a backward."""
    times = {name: summary["median"] for name, summary in found["seconds"].items()}
    costs = {
        "submit: allreduce_async_, a call": times["call"],
        "submit: the optimizer's hook, a gradient": times["hooked"] - times["plain"],
    }
    goal = Goal(_LIMIT_S, at_least=False)
    return [
        Line(work, show.seconds_text(cost), value=cost, unit="s", goal=goal) for work, cost in costs.items()
    ]
