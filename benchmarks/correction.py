"""Trains with and without CSC's correction of the momentum, at learning rates that stay high.

The trainings are those of benchmarks.convergence on the digits, but the learning rate does not fall at the
end.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, show
from benchmarks.convergence import trained
from benchmarks.report import page

STORED = page.RESULTS / "correction.json"
PART = page.part(page.RESULTS / "gradientflow.md", "correction")
_CSC = "csc:keep=0.1,dense_below=512,chunk_elements=256,warmup=100"
STRATEGIES = {
    "dense": "dense",
    "masked": _CSC,
    "local": f"{_CSC},momentum=local",
    "no correction": f"{_CSC},momentum=none",
}
COLUMNS = ("learning rate", *STRATEGIES)
RATES = (0.5, 1.0)
_TASK, _RANKS, _STEPS, _LIMIT_S = "digits", 2, 300, 3600.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.correction", description=__doc__)
    parser.add_argument(
        "--rates",
        nargs="+",
        type=float,
        default=list(RATES),
        help=f"multiples of the task's learning rate (default: {' '.join(map(str, RATES))})",
    )
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each (default: 5)")
    parser.add_argument("--steps", type=int, default=_STEPS, help=f"of a training (default: {_STEPS})")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    parser.add_argument("--docs", action="store_true", help="keep the results in docs/, and write the table")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    mpirun = launch.find_launcher()
    jobs = []
    for rate in arguments.rates:
        spec = {
            "task": _TASK,
            "rate": rate,
            "falls": False,
            "strategies": list(STRATEGIES.values()),
            "seeds": list(range(arguments.seeds)),
            "steps": arguments.steps,
            "every": arguments.steps,
        }
        runs = trained(mpirun, _RANKS, spec, _LIMIT_S)
        jobs.append({"rate": rate, "steps": arguments.steps, "runs": runs})
    show.console().print(show.table(COLUMNS, [cells(job) for job in jobs]))
    stored = {"machine": launch.machine(mpirun), "task": _TASK, "ranks": _RANKS, "jobs": jobs}
    show.save(STORED if arguments.docs else arguments.output / STORED.name, stored)
    if arguments.docs:
        PART.write(table(stored))


def table(stored: dict[str, Any]) -> str:
    """Make the page's table."""
    return "\n".join([*page.rows(COLUMNS, [cells(job) for job in stored["jobs"]]), ""])


def cells(job: dict[str, Any]) -> list[str]:
    """Return a row: by strategy, the mean and the range of the seeds' test losses, and the mean accuracy."""
    made = [f"{job['rate']:g}x"]
    for strategy in STRATEGIES.values():
        ends = [run["curve"][-1] for run in job["runs"] if run["strategy"] == strategy]
        losses, accuracies = ([end[column] for end in ends] for column in (1, 2))
        diverged = sum(not math.isfinite(loss) for loss in losses)
        if diverged:
            made.append(f"{diverged} of {len(losses)} diverge")
        else:
            spread = f"({min(losses):.3f} to {max(losses):.3f})"
            made.append(f"{statistics.mean(losses):.3f} {spread}, {statistics.mean(accuracies):.1%}")
    return made


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
