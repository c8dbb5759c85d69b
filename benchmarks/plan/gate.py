"""Measures strategy auto after its trial beside all candidates, turn by turn, on the rigs of benchmarks.plan.

Nodes are network namespaces of this machine (tests/rig), which need root. Computing is a sleep.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, show
from benchmarks.plan.cells import add_rigs, run_rig
from benchmarks.plan.tasks import AUTO, CANDIDATES
from benchmarks.table.result import Estimate
from benchmarks.table.samples import Samples

DENSE = CANDIDATES[0]
MOST = 1.02  # auto / dense: its interval must not lie above
_COLUMNS = ["rig", "Mbit/s", "task", "dense", "auto / dense", "best / auto", "choice"]


def over_dense(cell: dict[str, Any]) -> Estimate:
    """Return the time with auto, relative to dense."""
    return Samples(cell["seconds"], cell["others"]).ratio(AUTO, DENSE)


def of_best(cell: dict[str, Any]) -> float:
    """Return how fast auto is, relative to the best candidate."""
    medians: dict[str, float] = {name: statistics.median(own) for name, own in cell["seconds"].items()}
    return min(medians[name] for name in CANDIDATES) / medians[AUTO]


def rows(cells: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Make a table's rows."""
    made = []
    for cell in cells:
        ratio = over_dense(cell)
        made.append(
            [
                f"{cell['nodes']}x{cell['ranks_per_node']}",
                str(cell["mbit"]),
                cell["task"],
                show.seconds_text(statistics.median(cell["seconds"][DENSE])),
                f"{ratio.value:.3f}{show.interval(ratio.low, ratio.high, '')}",
                f"{of_best(cell):.1%}",
                cell["choice"].partition(" (")[0],
            ]
        )
    return made


def summary(cells: Sequence[dict[str, Any]]) -> str:
    """Return a sentence: the number of cells in which auto costs something, and its distance to the best."""
    slower = sum((over_dense(cell).low or 0.0) > MOST for cell in cells)
    best = [of_best(cell) for cell in cells]
    return (
        f"in {slower} of {len(cells)} cells the interval of auto / dense lies above {MOST}; auto is "
        f"{statistics.median(best):.1%} as fast as the best candidate (median), {min(best):.1%} at least"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan.gate", description=__doc__)
    add_rigs(parser)
    parser.add_argument("--repetitions", type=int, default=8, help="turns that count (default: 8)")
    parser.add_argument(
        "--output", type=Path, default=Path("out/gate.json"), help="cells that it has stay as they are"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    launch.require_rig("nodes")
    output: Path = arguments.output
    cells: list[dict[str, Any]] = json.loads(output.read_text())["cells"] if output.exists() else []
    known = {(cell["nodes"], cell["ranks_per_node"], cell["mbit"], cell["task"]) for cell in cells}
    for shape, mbit in itertools.product(arguments.shapes, arguments.mbit):
        tasks = [task for task in arguments.tasks if (*shape, mbit, task) not in known]
        if not tasks:
            continue
        spec = {"tasks": tasks, "repetitions": arguments.repetitions}
        found = run_rig("benchmarks.workers.gate", shape, mbit, spec)[0]["cells"]
        nodes, ranks = shape
        cells += [{"nodes": nodes, "ranks_per_node": ranks, "mbit": mbit, **cell} for cell in found]
        show.save(output, {"machine": launch.machine(launch.find_launcher()), "cells": cells})
    console = show.console()
    console.print(show.table(_COLUMNS, rows(cells), texts=3))
    console.print(summary(cells), highlight=False)


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
