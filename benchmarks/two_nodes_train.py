"""A training step over two nodes of two ranks, with gradients that travel in fp32 and in a half type.

The nodes are network namespaces of this machine (tests/rig), which need root. Exposed: what a step takes
longer than without communication. Under way: the time in which an operation of Roundelay's is in flight.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import launch, show
from benchmarks.models import available
from benchmarks.quiet import others_text
from benchmarks.two_nodes import NODES, RANKS
from tests.rig import Rig

_COLUMNS = ["model", "gradients", "way", "step", "exposed", "under way"]
FULL, HALF = "roundelay", "roundelay bf16"
WAYS = ("none", FULL, HALF, "ddp", "ddp fp16")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_nodes_train", description=__doc__)
    parser.add_argument("--models", choices=available(), nargs="+", default=["mlp", "resnet50"])
    parser.add_argument("--mbit", type=int, default=1000, help="the wire's speed, Mbit/s (default: 1000)")
    parser.add_argument("--repetitions", type=int, default=9, help="steps of each way (default: 9)")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    return parser


def rows(cell: dict[str, Any]) -> list[list[str]]:
    """Make one model's rows, a row for each way."""
    alone = median(cell["seconds"]["none"])
    made = []
    for way, seconds in cell["seconds"].items():
        under_way = median(cell["under_way"][way])
        made.append(
            [
                cell["model"],
                show.size_text(cell["bytes"]),
                way,
                show.seconds_text(median(seconds)),
                show.seconds_text(median(seconds) - alone),
                show.seconds_text(under_way) if under_way > 0 else "",
            ]
        )
    return made


def communication_ratio(cell: dict[str, Any]) -> float:
    """Compute how long operations are under way in the half type, with those of fp32 as 1."""
    half, full = (float(median(cell["under_way"][way])) for way in (HALF, FULL))
    return half / full


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    launch.require_rig("two nodes")
    mpirun = launch.find_launcher()
    spec = {
        "ways": WAYS,
        "models": arguments.models,
        "repetitions": arguments.repetitions,
        "bare": False,
    }
    with Rig(NODES, arguments.mbit) as rig:
        cells = launch.run_ranks(mpirun, "benchmarks.workers.train_step", RANKS, spec, 1200, rig)[0]["cells"]
    console = show.console()
    console.print(f"Training step, 2 nodes of 2 ranks, {arguments.mbit} Mbit/s", highlight=False)
    console.print(show.table(_COLUMNS, [row for cell in cells for row in rows(cell)]))
    for cell in cells:
        ratio = communication_ratio(cell)
        console.print(f"{cell['model']}: under way in bf16 {ratio:.2f} of fp32's", highlight=False)
    console.print(others_text(cells), highlight=False)
    found = {"machine": launch.machine(mpirun), "mbit": arguments.mbit, "cells": cells}
    show.save(arguments.output / "two_nodes_train.json", found)


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
