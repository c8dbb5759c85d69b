"""Measures steps over emulated nodes, fits the planner's constants to half of them, and tests the other half.

Nodes are network namespaces of this machine (tests/rig), which need root. Computing is a sleep, so that ranks
do not need a core each.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks import launch, show
from benchmarks.plan import fit
from benchmarks.plan.cells import Cell, add_rigs, measure
from benchmarks.plan.tasks import STRATEGIES
from benchmarks.report import lines, page, picture

STORED, PICTURE = page.RESULTS / "plan.json", page.IMAGES / "plan_rig.png"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan", description=__doc__)
    add_rigs(parser)
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES))
    parser.add_argument(
        "--repetitions", type=int, default=3, help="measurements of a cell, each of some steps (default: 3)"
    )
    parser.add_argument(
        "--cells",
        type=Path,
        default=Path("out/plan_cells.json"),
        help="measured so far, which is not measured again (a plan.json, too)",
    )
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of plan.json and plan.png")
    parser.add_argument("--docs", action="store_true", help="keep the results in docs instead")
    parser.add_argument("--fit", action="store_true", help="measure nothing: take the file of --cells")
    return parser


def load(path: Path) -> list[Cell]:
    """Read cells from a file of --cells or from plan.json; none if there is no file."""
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    cells = found if isinstance(found, list) else [*found["fitted"], *found["tested"]]
    return [Cell(**{key: value for key, value in cell.items() if key != "predicted"}) for cell in cells]


def _measure(arguments: argparse.Namespace) -> list[Cell]:
    """Measure the cells that the file lacks. Store them after each rig, and return all."""
    launch.require_rig("nodes")
    cells = load(arguments.cells)
    known = {cell.key for cell in cells}
    for shape, mbit in itertools.product(arguments.shapes, arguments.mbit):
        work = [
            (task, strategy)
            for task, strategy in itertools.product(arguments.tasks, arguments.strategies)
            if (*shape, mbit, task, strategy) not in known
        ]
        if not work:
            continue
        cells += measure(shape, mbit, work, arguments.repetitions)
        arguments.cells.parent.mkdir(parents=True, exist_ok=True)
        arguments.cells.write_text(json.dumps([dataclasses.asdict(cell) for cell in cells]))
    return cells


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    cells = load(arguments.cells) if arguments.fit else _measure(arguments)
    if len(cells) < 2:
        raise launch.JobError(f"{arguments.cells} has {len(cells)} cells: half of them are to be tested")
    result = fit.evaluate(cells)
    console = show.console()
    for line in result.lines():
        console.print(line, highlight=False)
    found = {"machine": launch.machine(launch.find_launcher()), **result.as_json()}
    own = arguments.output
    path, image = (STORED, PICTURE) if arguments.docs else (own / "plan.json", own / "plan.png")
    show.save(path, found)
    picture.draw(lines.plan, result, image)


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
