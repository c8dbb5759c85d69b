"""Measures steps over emulated nodes, fits the planner's constants to half of them, and tests the other half.

Nodes are network namespaces of this machine (tests/rig), which need root. Computing is a sleep, so that ranks
do not need a core each.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks import launch, show
from benchmarks.plan import fit
from benchmarks.plan.cells import Cell, measure
from benchmarks.plan.tasks import STRATEGIES, TASKS
from tests.rig import why_not

SHAPES = ((2, 1), (2, 2), (4, 2))
RATES = (100, 300, 1000)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan", description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=["2x1", "2x2", "4x2"], help="nodes x ranks of a node")
    parser.add_argument("--mbit", type=int, nargs="+", default=list(RATES), help="a node's rate, Mbit/s")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES))
    parser.add_argument("--repetitions", type=int, default=5, help="measurements of a cell (default: 5)")
    parser.add_argument("--cells", type=Path, default=Path("out/plan_cells.json"), help="measured so far")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of plan.json and plan.png")
    parser.add_argument("--fit", action="store_true", help="measure nothing: take the file of --cells")
    return parser


def _load(path: Path) -> list[Cell]:
    return [Cell(**cell) for cell in json.loads(path.read_text())] if path.exists() else []


def _key(cell: Cell) -> tuple[int, int, int, str, str]:
    return cell.nodes, cell.ranks_per_node, cell.mbit, cell.task, cell.strategy


def _measure(arguments: argparse.Namespace) -> list[Cell]:
    """Measure all rigs; what was measured before and is not measured again stays."""
    if reason := why_not():
        raise launch.JobError(f"no nodes on this machine: {reason}")
    cells = {_key(cell): cell for cell in _load(arguments.cells)}
    for text in arguments.shapes:
        nodes, ranks = (int(part) for part in text.split("x"))
        for mbit in arguments.mbit:
            found = measure(
                (nodes, ranks), mbit, arguments.tasks, arguments.strategies, arguments.repetitions
            )
            cells |= {_key(cell): cell for cell in found}
            arguments.cells.parent.mkdir(parents=True, exist_ok=True)
            arguments.cells.write_text(json.dumps([dataclasses.asdict(cell) for cell in cells.values()]))
    return list(cells.values())


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    cells = _load(arguments.cells) if arguments.fit else _measure(arguments)
    if not cells:
        raise launch.JobError(f"no cells in {arguments.cells}")
    result = fit.evaluate(cells)
    console = show.console()
    for line in result.lines():
        console.print(line, highlight=False)
    found = {"machine": launch.machine(launch.find_launcher()), **result.as_json()}
    show.save(arguments.output / "plan.json", found)
    fit.draw(result, arguments.output / "plan.png")


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
