"""From a call of `roundelay.run` until the results of 4 ranks are there."""

from __future__ import annotations

import subprocess
import sys
from statistics import median
from typing import Any

from benchmarks import measure as clock
from benchmarks import show
from benchmarks.table.line import Goal, Line
from benchmarks.table.run import Run

_RANKS = 4
_LIMIT_S = 0.5


def _import_torch() -> None:
    command = [sys.executable, "-c", "import torch"]
    processes = [subprocess.Popen(command) for _ in range(_RANKS)]
    if [process.wait() for process in processes] != [0] * _RANKS:
        raise RuntimeError("import torch failed")


def _start(synchronise: bool) -> None:
    import roundelay

    def ranks_part() -> float:  # travels by value: ranks need not find this file
        if not synchronise:
            return 1.0
        import torch

        import roundelay.torch as hvd

        hvd.init()
        return float(hvd.allreduce(torch.ones(1), op=hvd.Sum)) / hvd.size()

    if roundelay.run(ranks_part, np=_RANKS) != [1.0] * _RANKS:
        raise RuntimeError("a rank has another result")


def measure(run: Run, quick: bool) -> dict[str, Any]:
    """No job of the table's own: the library starts it."""
    turns = {
        "torch": lambda: [clock.timed(_import_torch)],
        "run": lambda: [clock.timed(lambda: _start(synchronise=False))],
        "sum": lambda: [clock.timed(lambda: _start(synchronise=True))],
    }
    return {"seconds": clock.in_turn(turns, 1 if quick else 9)}


def lines(found: dict[str, Any]) -> list[Line]:
    """The launcher alone, and with `init()` and a sum; importing torch is nobody's fault here."""
    seconds = found["seconds"]
    torch = median(seconds["torch"])
    more = median(own - base for own, base in zip(seconds["sum"], seconds["torch"], strict=True))
    goal = Goal(_LIMIT_S, at_least=False)
    own = median(seconds["run"])
    alone = f"start of {_RANKS} ranks: roundelay.run of nothing"
    first = f"start of {_RANKS} ranks to their first sum, less {_RANKS} x import torch"
    imports = show.seconds_text(torch)
    return [
        Line(alone, show.seconds_text(own), value=own, unit="s", goal=goal),
        Line(first, show.seconds_text(more), "import alone", imports, value=more, unit="s", goal=goal),
    ]
