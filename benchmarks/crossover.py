"""Finds the density from which on a dense allreduce between nodes sends less than top-k, and takes less time.

The nodes are network namespaces of this machine (tests/rig), which need root.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks import launch, show
from benchmarks.contenders import ALONE, DENSE
from benchmarks.report import page
from roundelay.torch.strategies.top_k import break_even
from tests.rig import Rig

STORED, PART = page.RESULTS / "crossover.json", page.part(page.RESULTS / "topk.md", "crossover")
_A_NODE = 2  # ranks
_FACTORS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)  # of the formula's density
_VALUE, _PAIR = 4, 8  # bytes
_LIMIT_S = 580.0
COLUMNS = ("nodes of 2 ranks", "density", "by the formula's", "a node sends", "by dense", "step", "by dense")
_FOUND = ("nodes of 2 ranks", "the formula", "equal bytes at", "equal time at")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crossover", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4], help="(default: 2 4)")
    parser.add_argument("--mbit", type=int, default=100, help="the wire's speed, Mbit/s (default: 100)")
    parser.add_argument(
        "--size", type=show.parse_size, default=4 << 20, help="bytes of gradients (default: 4M)"
    )
    parser.add_argument("--repetitions", type=int, default=5, help="steps of each (default: 5)")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    parser.add_argument("--docs", action="store_true", help="put the results into docs/results instead")
    return parser


def densities(nodes: int) -> list[float]:
    """Return the densities to measure, around the formula's."""
    return [factor * break_even(nodes, _VALUE, _PAIR) for factor in _FACTORS]


_TOPK, _MORE = "topk:density=", ",select=auto"


def strategy(density: float) -> str:
    """Return the text of top-k with this density."""
    return f"{_TOPK}{density}{_MORE}"


def cell(found: Sequence[Mapping[str, Any]], nodes: int) -> dict[str, Any]:
    """Return what all ranks of one job have found: by turn, the bytes that a node sent, and the seconds."""
    sent = {name: max(fmean(rank["sent"][name]) for rank in found) for name in found[0]["sent"]}
    meetings = sent.pop(ALONE)
    return {
        "nodes": nodes,
        "sent": {_name(text): bytes_ - meetings for text, bytes_ in sent.items()},
        "seconds": {_name(text): median(found[0]["seconds"][text]) for text in sent},
        "others": found[0]["others"],
    }


def _name(strategy: str) -> str:
    """Return top-k's density; another strategy's text as it is."""
    return strategy.removeprefix(_TOPK).removesuffix(_MORE)


def crossing(costs: Mapping[str, float]) -> float | None:
    """Return the density at which top-k costs as much as dense, between two that were measured."""
    points = sorted((float(name), cost) for name, cost in costs.items() if name != DENSE)
    for (left, below), (right, above) in itertools.pairwise(points):
        if below <= costs[DENSE] < above:
            return left + (right - left) * (costs[DENSE] - below) / (above - below)
    return None


def rows(cells: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Make the rows of all densities."""
    made = []
    for one in cells:
        sent, seconds, even = one["sent"], one["seconds"], break_even(one["nodes"], _VALUE, _PAIR)
        for name, bytes_ in sent.items():
            topk = name != DENSE
            made.append(
                [
                    str(one["nodes"]),
                    f"{float(name):.4g}" if topk else DENSE,
                    f"{float(name) / even:.2f}x" if topk else "",
                    show.quantity(bytes_, "B"),
                    f"{bytes_ / sent[DENSE]:.3f}x" if topk else "",
                    show.seconds_text(seconds[name]),
                    f"{seconds[name] / seconds[DENSE]:.3f}x" if topk else "",
                ]
            )
    return made


def crossings(cells: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Make a row for each number of nodes: the formula's density, and those that were found."""

    def text(density: float | None) -> str:
        return "none of these" if density is None else f"{density:.3f}"

    return [
        [
            str(one["nodes"]),
            f"{break_even(one['nodes'], _VALUE, _PAIR):.3f}",
            text(crossing(one["sent"])),
            text(crossing(one["seconds"])),
        ]
        for one in cells
    ]


def page_text(found: Mapping[str, Any]) -> str:
    """Make the page's tables."""
    where = f"{page.host(found['machine'], 'mpi')}, {found['mbit']} Mbit/s"
    lines = [f"{show.size_text(found['bytes'])} of fp32 gradients, {where}.", ""]
    lines += page.rows(_FOUND, crossings(found["cells"]))
    return "\n".join([*lines, "", *page.rows(COLUMNS, rows(found["cells"])), ""])


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    launch.require_rig("nodes")
    mpirun = launch.find_launcher()
    cells = []
    for nodes in arguments.nodes:
        turns = [ALONE, DENSE, *map(strategy, densities(nodes))]
        spec = {
            "turns": turns,
            "elements": arguments.size // _VALUE,
            "gradients": 1,
            "repetitions": arguments.repetitions,
        }
        with Rig(nodes, arguments.mbit) as rig:
            ranks = _A_NODE * nodes
            found = launch.run_ranks(mpirun, "benchmarks.workers.crossover", ranks, spec, _LIMIT_S, rig)
        cells.append(cell(found, nodes))
    console = show.console()
    console.print("Top-k beside a dense allreduce, by density")
    console.print(show.table(COLUMNS, rows(cells)))
    console.print(show.table(_FOUND, crossings(cells)))
    stored = {
        "machine": launch.machine(mpirun),
        "mbit": arguments.mbit,
        "bytes": arguments.size,
        "cells": cells,
    }
    show.save(STORED if arguments.docs else arguments.output / STORED.name, stored)
    if arguments.docs:
        PART.write(page_text(page.read(STORED)))


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
