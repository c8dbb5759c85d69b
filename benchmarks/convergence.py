"""Compares training with strategies with dense training: curves of the test loss over several seeds.

Every strategy trains the same model from the same weights on the same batches. The spread over the seeds
tells which differences mean something. "rate" is a multiple of the task's learning rate. "sent" is the part
of the gradients' bytes that the steps with a technique have given to their fabrics; dense ones, such as those
of a warm-up, do not count. A strategy that ends with " without feedback" loses what it does not send.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, show
from benchmarks.report import curves, page, picture
from roundelay.run.modes.mpi import Mpirun

STORED = page.RESULTS / "convergence.json"
NO_FEEDBACK = " without feedback"
STEPS = {"digits": 600, "characters": 1200}  # by task
TASKS = tuple(STEPS)
# The models are small, and so are the chunks.
_COLD = "csc:keep=0.1,dense_below=512,chunk_elements=256"
_CSC = f"{_COLD},warmup=100"
_TOPK = "topk:density=0.01,dense_below=512,warmup=100"
STRATEGIES = (
    "dense",
    *(_CSC, f"{_CSC},momentum=local", f"{_CSC},momentum=none", _COLD),
    *(_TOPK, f"{_TOPK},momentum=none", f"{_TOPK},momentum=none{NO_FEEDBACK}"),
    "power_sgd:rank=2,dense_below=512,warmup=100",
    "quantised:bits=8",
)
_POINTS = 20  # the points of a curve


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convergence", description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument(
        "--strategies",
        nargs="+",
        default=list(STRATEGIES),
        metavar="TEXT",
        help=f"as --strategy takes them (default: {' '.join(STRATEGIES)})",
    )
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each (default: 5)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="(default: 2 4)")
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0], help="(default: 1)")
    parser.add_argument("--steps", type=int, help="instead of the tasks' own numbers of steps")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds of one job (default: 3600)")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON and the picture")
    parser.add_argument(
        "--docs",
        action="store_true",
        help="keep these trainings in docs/results, instead of all that are there, and write the pages",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    mpirun = launch.find_launcher()
    jobs = []
    for task, rate, ranks in _chosen(arguments):
        steps = arguments.steps or STEPS[task]
        job = {"task": task, "rate": rate, "steps": steps}
        spec = {
            **job,
            "strategies": arguments.strategies,
            "seeds": list(range(arguments.seeds)),
            "every": max(1, steps // _POINTS),
        }
        runs = trained(mpirun, ranks, spec, arguments.timeout)
        jobs.append({**job, "ranks": ranks, "runs": runs})
    console = show.console()
    console.print("Final test loss and accuracy, mean and range of the seeds")
    rows = [row for job in jobs for row in curves.convergence_rows(job)]
    console.print(show.table(curves.CONVERGENCE_COLUMNS, rows, texts=3))
    found = {"machine": launch.machine(mpirun), "jobs": jobs}
    if arguments.docs:
        show.save(STORED, found)
        curves.render_convergence(found)
    else:
        show.save(arguments.output / STORED.name, found)
        picture.draw(curves.convergence, found, arguments.output / "convergence.png")


def trained(mpirun: Mpirun, ranks: int, spec: dict[str, Any], limit: float) -> list[dict[str, Any]]:
    """Train on so many ranks, as benchmarks/workers/convergence.py says. Return the trainings.

    Raises:
        JobError: a rank failed, or the job took longer than `limit` seconds.

    """
    found = launch.run_ranks(mpirun, "benchmarks.workers.convergence", ranks, spec, limit)
    runs: list[dict[str, Any]] = found[0]["runs"]
    return runs


def _chosen(arguments: argparse.Namespace) -> Iterator[tuple[str, float, int]]:
    """Yield the jobs: task, learning rate and number of ranks."""
    for task in arguments.tasks:
        for rate in arguments.rates:
            for ranks in arguments.ranks:
                yield task, rate, ranks


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
