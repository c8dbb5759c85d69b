"""GradientFlow's steps on two nodes of two ranks, beside DDP and its hooks, turn by turn in one run.

The nodes are network namespaces of this machine (tests/rig), which need root.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import itertools
from collections.abc import Sequence
from pathlib import Path

from benchmarks import launch, show
from benchmarks.contenders import ALONE, DENSE_STEPS, GRADIENTFLOW
from benchmarks.gradientflow import result
from benchmarks.report import gradientflow as report
from benchmarks.report import page, picture
from roundelay.run.modes.mpi import Mpirun
from tests.rig import Rig

_NODES = 2
_RANKS = 8  # in two crews of four: one has a pool, one reduces each gradient by itself
_LIMIT_S = 3600.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gradientflow", description=__doc__)
    parser.add_argument(
        "--mbit", type=int, nargs="+", default=[100, 1000], help="wires' speeds, Mbit/s (default: 100 1000)"
    )
    parser.add_argument(
        "--contenders", choices=list(GRADIENTFLOW), nargs="+", default=list(GRADIENTFLOW), help="default: all"
    )
    parser.add_argument(
        "--repetitions",
        type=int,
        nargs="+",
        default=[12, 40],
        help="measured steps by wire (default: 12 40)",
    )
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of JSON, Markdown and plot")
    docs = parser.add_mutually_exclusive_group()
    docs.add_argument("--docs", action="store_true", help="keep the results in docs/, and render")
    docs.add_argument("--render", action="store_true", help="measure nothing: pages and picture of that JSON")
    return parser


def _measure(mpirun: Mpirun, mbit: int, repetitions: int, arguments: argparse.Namespace) -> result.Wire:
    chosen = {ALONE, *arguments.contenders}
    spec = {
        "contenders": [name for name in GRADIENTFLOW if name in chosen],
        "repetitions": repetitions,
        "nodes": _NODES,
    }
    with Rig(_NODES, mbit) as rig:
        found = launch.run_ranks(mpirun, "benchmarks.workers.gradientflow", _RANKS, spec, _LIMIT_S, rig)
    show.save(arguments.output / f"gradientflow_{mbit}.json", {"mbit": mbit, "ranks": found})
    return result.wire(found, mbit, _NODES, result.WARMUPS)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    if arguments.render:
        report.render(page.read(report.STORED))
        return
    launch.require_rig("two nodes")
    if importlib.util.find_spec("sklearn") is None:
        raise launch.JobError("no digits to learn: pip install scikit-learn")
    mpirun = launch.find_launcher()
    console = show.console()
    wires = []
    for mbit, repetitions in zip(arguments.mbit, itertools.cycle(arguments.repetitions), strict=False):
        wire = _measure(mpirun, mbit, repetitions, arguments)
        wires.append(wire)
        console.print(f"{report.title(wire)}. {report.disturbed(wire)}", highlight=False)
        lines = [report.cells(row, mbit) for row in wire.rows]
        console.print(show.table(report.COLUMNS, lines, texts=1))
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    stored = {
        "day": day,
        "machine": launch.machine(mpirun),
        "dense_steps": dict.fromkeys(("CSC", "top-k", "PowerSGD"), DENSE_STEPS),
        "wires": [wire.as_json() for wire in wires],
    }
    show.save(arguments.output / "gradientflow.json", stored)
    (arguments.output / "gradientflow.md").write_text(report.text(stored))
    picture.draw(report.paint, stored, arguments.output / "gradientflow.png")
    if arguments.docs:
        show.save(report.STORED, stored)
        report.render(stored)


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
