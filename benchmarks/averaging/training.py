"""Compares training that communicates less often with dense training: test loss and accuracy of some seeds.

The ranks are on this machine, and take themselves for nodes of 2. An epoch is a twentieth of the steps. In
the sweep DASO gets a loss that falls in each epoch, so that it keeps its skips.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, show
from benchmarks.convergence import TASKS, trained
from benchmarks.report import curves, page, picture

STORED = page.RESULTS / "averaging_training.json"
EPOCHS = 20
_ENDS = f"warmup_epochs=2,cooldown_epochs=2,total_epochs={EPOCHS}"


def daso(every: int, wait: int) -> str:
    """Return the text of a strategy with a short warm-up and a short cool-down."""
    return f"daso:global_skip={every},batches_to_wait={wait},{_ENDS}"


STRATEGIES = ("dense", "local_sgd:period=4", "local_sgd:period=8", daso(4, 1))
# An epoch of the default has 30 batches: with 28 there is one transfer in it whose merge comes in time.
SWEEP = tuple(daso(every, wait) for every, wait in ((8, 1), (8, 2), (8, 4), (8, 8), (28, 28)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.averaging.training", description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES), metavar="TEXT")
    parser.add_argument("--sweep", nargs="*", default=list(SWEEP), metavar="TEXT")
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each (default: 5)")
    parser.add_argument("--nodes", type=int, default=2, help="nodes of 2 ranks (default: 2)")
    parser.add_argument("--steps", type=int, default=600, help="of a training (default: 600)")
    parser.add_argument("--timeout", type=float, default=7200.0, help="seconds of a job (default: 7200)")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON and the plot")
    docs = parser.add_mutually_exclusive_group()
    docs.add_argument("--docs", action="store_true", help="keep the results in docs/results, and render")
    docs.add_argument("--render", action="store_true", help="measure nothing: pages and picture of that JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    if arguments.render:
        curves.render_averaging(page.read(STORED))
        return
    mpirun = launch.find_launcher()
    jobs = []
    for task in arguments.tasks:
        steps = arguments.steps
        runs: list[dict[str, Any]] = []
        for strategies, steady in ((arguments.strategies, False), (arguments.sweep, True)):
            spec = {
                "task": task,
                "strategies": strategies,
                "seeds": list(range(arguments.seeds)),
                "steps": steps,
                "every": max(1, steps // EPOCHS),
                "nodes": arguments.nodes,
                "steady": steady,
            }
            ranks = 2 * arguments.nodes
            if strategies:
                found = trained(mpirun, ranks, spec, arguments.timeout)
                runs += [{**run, "steady": steady} for run in found]
        jobs.append({"task": task, "nodes": arguments.nodes, "steps": steps, "runs": runs})
        show.console().print(show.table(curves.AVERAGING_COLUMNS, curves.averaging_rows(jobs[-1:]), texts=2))
    stored = {"machine": launch.machine(mpirun), "jobs": jobs}
    if arguments.docs:
        show.save(STORED, stored)
        curves.render_averaging(stored)
    else:
        show.save(arguments.output / "training.json", stored)
        picture.draw(curves.averaging, stored, arguments.output / "averaging_training.png")


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
