"""Choose the defaults of csc and top-k: docs/results/protocol.md states how.

All trainings take some hours. What is stored already is not run again, so the command may be interrupted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, show
from benchmarks.convergence import trained
from benchmarks.protocol.cells import STEPS, Job, choosing, reporting, tuning
from benchmarks.protocol.choices import Losses
from benchmarks.report import page
from benchmarks.report import protocol as report
from roundelay.run.modes.mpi import Mpirun

_LIMIT_S = 3600.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.protocol", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON (default: out)")
    docs = parser.add_mutually_exclusive_group()
    docs.add_argument(
        "--docs", action="store_true", help="go on with the trainings of the page, and write it"
    )
    docs.add_argument("--render", action="store_true", help="train nothing: write the page of what is stored")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    path = report.STORED if arguments.docs or arguments.render else arguments.output / report.STORED.name
    stored: dict[str, Any] = page.read(path) if path.exists() else {"jobs": []}
    if not arguments.render:
        mpirun = launch.find_launcher()
        stored["machine"] = launch.machine(mpirun)
        for job in _missing(stored):
            stored["jobs"].append(_run(mpirun, job))
            show.save(path, stored)
    if arguments.docs or arguments.render:
        report.PART.write(report.text(stored))
    else:
        print(report.text(stored))


def _missing(stored: dict[str, Any]) -> Iterator[Job]:
    """Yield the jobs that are not stored. Each stage begins with what the one before has told."""

    def new(jobs: Iterator[Job]) -> Iterator[Job]:
        return (job for job in jobs if not Losses(stored["jobs"]).has(job))

    yield from new(tuning())
    rates = Losses(stored["jobs"]).rates()
    yield from new(choosing(rates))
    yield from new(reporting(rates, Losses(stored["jobs"]).chosen()))


def _run(mpirun: Mpirun, job: Job) -> dict[str, Any]:
    cell = job.cell
    spec = {
        "task": cell.task,
        "optimizer": cell.optimizer,
        "falls": cell.falls,
        "rate": job.rate,
        "steps": STEPS[cell.task],
        "every": STEPS[cell.task],
        "strategies": job.strategies,
        "seeds": job.seeds,
    }
    losses: dict[str, list[float]] = {strategy: [] for strategy in job.strategies}
    for run in trained(mpirun, cell.ranks, spec, _LIMIT_S):  # seed by seed
        losses[run["strategy"]].append(run["curve"][-1][1])
    return {"stage": job.stage, "cell": list(cell), "rate": job.rate, "losses": losses}


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
