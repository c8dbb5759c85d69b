"""How long training takes until it is as good as dense training, on two nodes of two ranks with a slow wire.

The nodes are network namespaces of this machine (tests/rig), which need root.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, show
from benchmarks.contenders import TIME_TO_LOSS
from benchmarks.report import page, picture
from benchmarks.report import time_to_loss as report
from roundelay.run.modes.mpi import Mpirun
from tests.rig import Rig

_NODES, _RANKS, _LIMIT_S = 2, 4, 3600.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.time_to_loss", description=__doc__)
    parser.add_argument("--mbit", type=int, nargs="+", default=[100, 1000], help="(default: 100 1000)")
    parser.add_argument(
        "--contenders", choices=list(TIME_TO_LOSS), nargs="+", default=list(TIME_TO_LOSS), help="default: all"
    )
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each (default: 3)")
    parser.add_argument("--steps", type=int, default=300, help="of a training (default: 300)")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON and the picture")
    docs = parser.add_mutually_exclusive_group()
    docs.add_argument("--docs", action="store_true", help="keep the results in docs/, and write the page")
    docs.add_argument("--render", action="store_true", help="train nothing: write the page of what is stored")
    return parser


def _measure(mpirun: Mpirun, mbit: int, arguments: argparse.Namespace) -> dict[str, Any]:
    spec = {"contenders": arguments.contenders, "seeds": arguments.seeds, "steps": arguments.steps}
    with Rig(_NODES, mbit) as rig:
        found = launch.run_ranks(mpirun, "benchmarks.workers.time_to_loss", _RANKS, spec, _LIMIT_S, rig)
    every = zip(*(rank["runs"] for rank in found), strict=True)
    return {"mbit": mbit, "runs": [_slowest(runs) for runs in every]}


def _slowest(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a training as rank 0 saw it, with the seconds of the slowest rank."""
    return {**runs[0], "seconds": list(map(max, zip(*(run["seconds"] for run in runs), strict=True)))}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    if arguments.render:
        report.render(page.read(report.STORED))
        return
    launch.require_rig("two nodes")
    mpirun = launch.find_launcher()
    wires = [_measure(mpirun, mbit, arguments) for mbit in arguments.mbit]
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    found = {"day": day, "machine": launch.machine(mpirun), "steps": arguments.steps, "wires": wires}
    show.console().print(show.table(report.COLUMNS, report.rows(found)))
    if arguments.docs:
        show.save(report.STORED, found)
        report.render(found)
    else:
        show.save(arguments.output / report.STORED.name, found)
        picture.draw(report.paint, found, arguments.output / report.PICTURE.name)


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
