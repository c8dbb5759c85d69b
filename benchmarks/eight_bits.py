"""Steps of large gradients between nodes in fp32, in bf16 and in 8 bits: bytes and times.

The nodes are network namespaces of this machine (tests/rig), which need root.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, show
from benchmarks.contenders import ALONE, DENSE
from benchmarks.crossover import cell
from benchmarks.report import page
from benchmarks.workers.crossover import NONE
from tests.rig import Rig

STORED, PART = page.RESULTS / "quantised.json", page.part(page.RESULTS / "quantised.md", "eight_bits")
STRATEGIES = (DENSE, "dense:wire=bf16", "quantised:bits=8")
COLUMNS = (
    "nodes of 2 ranks",
    "buckets",
    "strategy",
    "a node sends",
    "by fp32's",
    "step",
    "exposed",
    "by fp32's",
)
_A_NODE, _ELEMENT, _LIMIT_S = 2, 4, 580.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.eight_bits", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4], help="(default: 2 4)")
    parser.add_argument("--mbit", type=int, default=1000, help="the wire's speed, Mbit/s (default: 1000)")
    parser.add_argument(
        "--size", type=show.parse_size, default=25 << 20, help="bytes of gradients (default: 25M)"
    )
    parser.add_argument(
        "--buckets", type=int, nargs="+", default=[1, 4], help="that the gradients fill (default: 1 4)"
    )
    parser.add_argument("--repetitions", type=int, default=9, help="steps of each (default: 9)")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    parser.add_argument("--docs", action="store_true", help="keep the results in docs/, and write the table")
    return parser


def _exposed(one: Mapping[str, Any], strategy: str) -> float:
    """Return by how many seconds a step is longer than one that nothing reduces."""
    seconds: Mapping[str, float] = one["seconds"]
    return seconds[strategy] - seconds[NONE]


def rows(cells: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Make the table's rows."""
    return [
        [
            str(one["nodes"]),
            str(one["buckets"]),
            f"`{strategy}`",
            show.quantity(one["sent"][strategy], "B"),
            f"{one['sent'][strategy] / one['sent'][DENSE]:.3f}x",
            show.seconds_text(one["seconds"][strategy]),
            show.seconds_text(_exposed(one, strategy)),
            f"{_exposed(one, strategy) / _exposed(one, DENSE):.3f}x",
        ]
        for one in cells
        for strategy in STRATEGIES
    ]


def page_text(found: Mapping[str, Any]) -> str:
    """Make the page's table."""
    where = f"{page.host(found['machine'], 'mpi')}, {found['mbit']} Mbit/s, {found['day']}"
    line = f"{show.size_text(found['bytes'])} of fp32 gradients, {where}."
    return "\n".join([line, "", *page.rows(COLUMNS, rows(found["cells"])), ""])


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    launch.require_rig("nodes")
    mpirun = launch.find_launcher()
    cells = []
    for nodes, buckets in itertools.product(arguments.nodes, arguments.buckets):
        spec = {
            "turns": [ALONE, NONE, *STRATEGIES],
            "elements": arguments.size // _ELEMENT,
            "gradients": buckets,
            "repetitions": arguments.repetitions,
        }
        one_each = {"ROUNDELAY_THETA": str(arguments.size // buckets)}
        with Rig(nodes, arguments.mbit) as rig:
            ranks, worker = _A_NODE * nodes, "benchmarks.workers.crossover"
            found = launch.run_ranks(mpirun, worker, ranks, spec, _LIMIT_S, rig, one_each)
        cells.append({**cell(found, nodes), "buckets": buckets})
    show.console().print(show.table(COLUMNS, rows(cells)))
    stored = {
        "day": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "machine": launch.machine(mpirun),
        "mbit": arguments.mbit,
        "bytes": arguments.size,
        "cells": cells,
    }
    show.save(STORED if arguments.docs else arguments.output / STORED.name, stored)
    if arguments.docs:
        PART.write(page_text(stored))


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
