"""The time from a call of `roundelay.run` to the results of 4 ranks."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from benchmarks import measure as clock
from benchmarks.table.result import Result
from benchmarks.table.run import Run
from benchmarks.table.samples import Samples, compare

_RANKS = 4
NOTHING = f"start of {_RANKS} ranks: roundelay.run of nothing"
FIRST_SUM = f"start of {_RANKS} ranks to their first sum"


def _run_python(program: str) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(_RANKS)]
    if [process.wait() for process in processes] != [0] * _RANKS:
        raise RuntimeError(f"'{program}' failed")


def _start(synchronise: bool) -> None:
    import roundelay

    def ranks_part() -> float:  # travels by value, so that ranks need not find this file
        if not synchronise:
            return 1.0
        import torch

        import roundelay.torch as hvd

        hvd.init()
        return float(hvd.allreduce(torch.ones(1), op=hvd.Sum)) / hvd.size()

    if roundelay.run(ranks_part, np=_RANKS) != [1.0] * _RANKS:
        raise RuntimeError("a rank has another result")


def measure(run: Run, quick: bool) -> dict[str, Any]:
    """Measure without a job of the table's own: the library starts the ranks."""
    turns = {
        "python": lambda: [clock.timed(lambda: _run_python("pass"))],
        "torch": lambda: [clock.timed(lambda: _run_python("import torch"))],
        "run": lambda: [clock.timed(lambda: _start(synchronise=False))],
        "sum": lambda: [clock.timed(lambda: _start(synchronise=True))],
    }
    found = clock.in_turn(turns, 1 if quick else 9)
    return {"seconds": found.single(), "others": found.others}


def results(found: dict[str, Any]) -> list[Result]:
    """Make the results: the launcher alone, and with `init()` and a sum, whose floor is `import torch`."""
    samples = Samples(found["seconds"], found["others"])
    python, torch = (
        (name, f"{_RANKS} x {what}") for name, what in (("python", "python"), ("torch", "import torch"))
    )
    return [
        compare(NOTHING, samples, {}, own="run", floor=python),
        compare(FIRST_SUM, samples, {}, own="sum", floor=torch),
    ]
