"""A blocking sum of a few bytes between two nodes: locked, negotiated, and beside a ping-pong, turn by turn.

The nodes are network namespaces of this machine (tests/rig), which need root.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import launch, show
from benchmarks.report import page
from tests.rig import Rig

_NODES = 2
_SIZES = ("256", "4K")
_COLUMNS = [
    "nodes x ranks",
    "size",
    "round trip",
    "negotiated",
    "locked",
    "negotiated / locked",
    "messages of all ranks: negotiated",
    "locked",
]
# Beyond so many round trips of a ping-pong, by ranks on a node: the most seconds more.
_GOALS = {"negotiated": (1.5, {1: 60e-6, 2: 150e-6}), "locked": (1.0, {1: 60e-6, 2: 150e-6})}
_GOAL_SIZE = 4 << 10
STORED = page.RESULTS / "small_between_nodes.json"
PART = page.part(page.RESULTS / "schedule_lock.md", "small_between_nodes")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_between_nodes", description=__doc__)
    parser.add_argument(
        "--sizes", type=show.parse_size, nargs="+", help=f"bytes (default: {' '.join(_SIZES)})"
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="on a node (default: 1 2)")
    parser.add_argument("--mbit", type=int, default=10_000, help="the wire's speed, Mbit/s (default: 10000)")
    parser.add_argument("--burst", type=int, default=100, help="sums of a turn (default: 100)")
    parser.add_argument("--repetitions", type=int, default=21, help="turns of each (default: 21)")
    parser.add_argument("--docs", action="store_true", help="store JSON and table in docs/results")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    return parser


def _measured(given: argparse.Namespace, each: int) -> list[dict[str, Any]]:
    sizes = given.sizes or [show.parse_size(size) for size in _SIZES]
    spec: dict[str, Any] = {"sizes": sizes, "repetitions": given.repetitions, "burst": given.burst}
    with Rig(_NODES, given.mbit) as rig:
        spec["address"] = rig.address(0)
        ranks = launch.run_ranks(
            launch.find_launcher(),
            "benchmarks.workers.small_between_nodes",
            _NODES * each,
            spec,
            600,
            rig,
            {"ROUNDELAY_FABRIC": "shm+tcp" if each > 1 else "tcp"},
        )
    cells: list[dict[str, Any]] = ranks[0]["cells"]
    for index, cell in enumerate(cells):
        cell["each"] = each
        for way, counted in cell["counted"].items():
            for key in counted:
                counted[key] = sum(rank["cells"][index]["counted"][way][key] for rank in ranks)
    return cells


def rows(cells: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Make the table's rows."""
    made = []
    for cell in cells:
        took = {name: median(seconds) for name, seconds in cell["seconds"].items()}
        made.append(
            [
                f"{_NODES} x {cell['each']}",
                show.size_text(cell["bytes"]),
                *(show.seconds_text(took[name]) for name in ("ping-pong", "negotiated", "locked")),
                f"{took['negotiated'] / took['locked']:.2f}x",
                *(f"{cell['counted'][way]['messages_sent']:.1f}" for way in ("negotiated", "locked")),
            ]
        )
    return made


def goals(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Say which goals are missed."""
    missed = []
    for cell in cells:
        took = {name: median(seconds) for name, seconds in cell["seconds"].items()}
        for way, (trips, more_s) in _GOALS.items():
            allowed = trips * took["ping-pong"] + more_s.get(cell["each"], float("inf"))
            if cell["bytes"] == _GOAL_SIZE and took[way] > allowed:
                where = f"{_NODES} x {cell['each']}, {show.size_text(cell['bytes'])}, {way}"
                missed.append(
                    f"- {where}: {show.seconds_text(took[way])} (goal: {show.seconds_text(allowed)})"
                )
    return ["Goals that are missed:", *missed] if missed else ["All goals are met."]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    given = _parser().parse_args(argv)
    launch.require_rig("two nodes")
    cells = [cell for each in given.ranks for cell in _measured(given, each)]
    show.console().print(show.table(_COLUMNS, rows(cells), texts=2))
    for line in goals(cells):
        print(line)
    found = {"machine": launch.machine(launch.find_launcher()), "mbit": given.mbit, "cells": cells}
    show.save(STORED if given.docs else given.output / "small_between_nodes.json", found)
    if given.docs:
        head = f"{page.host(found['machine'])}, {given.mbit / 1000:g} Gbit/s."
        PART.write("\n".join([head, "", *page.rows(_COLUMNS, rows(cells)), "", *goals(cells), ""]))


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
