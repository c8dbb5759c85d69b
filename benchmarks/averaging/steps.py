"""Steps of DASO and of local SGD on nodes with a slow wire, beside steps without communication, turn by turn.

The nodes are network namespaces of this machine (tests/rig), which need root.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, show
from benchmarks.contenders import ALONE, AVERAGING
from benchmarks.report import averaging as report
from benchmarks.report import page, picture
from roundelay.run.modes.mpi import Mpirun
from tests.rig import Rig

_A_NODE = 2
_LIMIT_S = 580.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.averaging.steps", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4], help="nodes of 2 ranks (2 4)")
    parser.add_argument("--mbit", type=int, default=100, help="the wire's speed, Mbit/s (default: 100)")
    parser.add_argument("--contenders", choices=list(AVERAGING), nargs="+", default=list(AVERAGING))
    parser.add_argument("--repetitions", type=int, default=5, help="turns that count (default: 5)")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON and the plot")
    docs = parser.add_mutually_exclusive_group()
    docs.add_argument("--docs", action="store_true", help="keep the results in docs/results, and render")
    docs.add_argument("--render", action="store_true", help="measure nothing: pages and picture of that JSON")
    return parser


def _measure(mpirun: Mpirun, nodes: int, arguments: argparse.Namespace) -> dict[str, Any]:
    spec = {
        "contenders": [name for name in AVERAGING if name in {ALONE, *arguments.contenders}],
        "repetitions": arguments.repetitions,
    }
    with Rig(nodes, arguments.mbit) as rig:
        ranks = launch.run_ranks(mpirun, "benchmarks.workers.averaging", _A_NODE * nodes, spec, _LIMIT_S, rig)
    sent = {
        name: [max(each) for each in zip(*(rank["sent"][name] for rank in ranks), strict=True)]
        for name in spec["contenders"]
    }
    late = {name: sum(rank["late"][name] for rank in ranks) for name in spec["contenders"]}
    return {**ranks[0], "nodes": nodes, "mbit": arguments.mbit, "sent": sent, "late": late}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    if arguments.render:
        report.render(page.read(report.STORED))
        return
    launch.require_rig("nodes")
    mpirun = launch.find_launcher()
    rigs = []
    for nodes in arguments.nodes:
        rigs.append(_measure(mpirun, nodes, arguments))
        show.console().print(report.title(rigs[-1]), highlight=False)
        show.console().print(show.table(report.COLUMNS, report.rows(rigs[-1]), texts=1))
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    found = {"day": day, "machine": launch.machine(mpirun), "rigs": rigs}
    if arguments.docs:
        if report.STORED.exists():
            found["rigs"] = report.instead(page.read(report.STORED)["rigs"], rigs)
        show.save(report.STORED, found)
        report.render(found)
    else:
        show.save(arguments.output / "steps.json", found)
        picture.draw(report.paint, found, arguments.output / "averaging_steps.png")


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
