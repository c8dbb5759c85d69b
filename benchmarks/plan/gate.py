"""Measures strategy auto after its trial beside all candidates, turn by turn, on the rigs of benchmarks.plan.

Nodes are network namespaces of this machine (tests/rig), which need root. Computing is a sleep. With --racks
the nodes are in racks with narrow uplinks, and plans over levels are the candidates.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, show
from benchmarks.plan.cells import add_rigs, run_racks, run_rig
from benchmarks.plan.tasks import AUTO, DENSE, THROUGHOUT
from benchmarks.table.result import Estimate
from benchmarks.table.samples import Samples

_FACTORS = "2,4+2,2,2"  # over racks: two levels, which dense takes, and three
_THREE = "allreduce:factors=2+2+2"
_WORKER = "benchmarks.workers.gate"
MOST = 1.02  # auto / dense: its interval must not lie above
_COLUMNS = ["rig", "Mbit/s", "task", "dense", "auto / dense", "best / auto", "choice"]


def over_dense(cell: dict[str, Any]) -> Estimate:
    """Return the time with auto, relative to dense."""
    return Samples(cell["seconds"], cell["others"]).ratio(AUTO, DENSE)


def of_best(cell: dict[str, Any]) -> float:
    """Return how fast auto is, relative to the best candidate."""
    medians: dict[str, float] = {name: statistics.median(own) for name, own in cell["seconds"].items()}
    return min(own for name, own in medians.items() if name != AUTO) / medians[AUTO]


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
    parser.add_argument(
        "--loss",
        choices=list(THROUGHOUT),
        default="rounding",
        help="what gradients may lose (default: rounding)",
    )
    parser.add_argument("--racks", action="store_true", help="two racks of two nodes of two ranks instead")
    parser.add_argument("--repetitions", type=int, default=8, help="turns that count (default: 8)")
    parser.add_argument(
        "--output",
        type=Path,
        help="cells that it has stay as they are (default: out/gate.json, with --racks out/gate_racks.json)",
    )
    return parser


def _measured(arguments: argparse.Namespace, cells: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Measure the cells that are not there yet; yield those of each rig."""
    known = {(cell["nodes"], cell["ranks_per_node"], cell["mbit"], cell["task"]) for cell in cells}
    shapes = [(4, 2)] if arguments.racks else arguments.shapes
    for shape, mbit in itertools.product(shapes, arguments.mbit):
        tasks = [task for task in arguments.tasks if (*shape, mbit, task) not in known]
        if not tasks:
            continue
        spec: dict[str, Any] = {"tasks": tasks, "repetitions": arguments.repetitions}
        if arguments.racks:
            spec |= {"candidates": [DENSE], "throughout": [DENSE, _THREE]}
            found = run_racks(_WORKER, mbit, spec, _FACTORS)
        else:
            spec |= {"loss": arguments.loss, "throughout": THROUGHOUT[arguments.loss]}
            found = run_rig(_WORKER, shape, mbit, spec)
        nodes, ranks = shape
        yield [{"nodes": nodes, "ranks_per_node": ranks, "mbit": mbit, **cell} for cell in found[0]["cells"]]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    launch.require_rig("racks" if arguments.racks else "nodes")
    output = Path(arguments.output or ("out/gate_racks.json" if arguments.racks else "out/gate.json"))
    cells: list[dict[str, Any]] = json.loads(output.read_text())["cells"] if output.exists() else []
    for found in _measured(arguments, cells):
        cells += found
        show.save(output, {"machine": launch.machine(launch.find_launcher()), "cells": cells})
    console = show.console()
    console.print(show.table(_COLUMNS, rows(cells), texts=3))
    console.print(summary(cells), highlight=False)


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
