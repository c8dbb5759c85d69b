"""LARS's trust ratios: layer by layer, with one multi-tensor norm on each rank, and shared by the ranks.

Beside the measurement stands the time that a model gives for 128 GPUs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import launch, measure, show
from benchmarks.quiet import others_text
from benchmarks.report import bars, page, picture
from benchmarks.shapes import SHAPES
from roundelay.torch.optim.norms import shares

WAYS = ("per layer", "multi-tensor", "shared")
_COLUMNS = ["model", "ranks", "layers", *WAYS, "multi-tensor / shared"]


@dataclass(frozen=True)
class Cluster:
    """Constants of a GPU cluster, all assumed: 16 nodes of 8 V100, 25 Gbit/s between the nodes."""

    ranks: int = 128
    kernel: float = 5e-6  # seconds of one small kernel, its launch included
    memory: float = 800e9  # bytes a second that a kernel reads
    alpha: float = 20e-6  # seconds of a message between nodes
    wire: float = 25e9 / 8  # bytes a second of a node's network

    def seconds(self, layers: int, size: int, largest_share: int) -> dict[str, float]:
        """Return the model's seconds of all trust ratios, by way.

        A layer has two norms, of its weights and of its gradient: `size` bytes each in all layers. All ratios
        of L layers travel as 4 L bytes, by recursive doubling: ceil(log2 P) alpha + 4 L / W. The largest
        share of a rank is `largest_share` bytes, and has multi-tensor norms too.
        """
        steps = (self.ranks - 1).bit_length()
        gather = steps * self.alpha + 4 * layers / self.wire
        return {
            "per layer": 2 * layers * self.kernel + 2 * size / self.memory,
            "multi-tensor": 2 * self.kernel + 2 * size / self.memory,
            "shared": 2 * self.kernel + 2 * largest_share / self.memory + gather,
        }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lars", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=sorted(SHAPES), default=list(SHAPES))
    parser.add_argument(
        "--ranks", type=int, nargs="*", default=[2, 4], help="(default: 2 4; none: the model alone)"
    )
    parser.add_argument("--calls", type=int, default=5, help="calls in a row, of which the fastest counts")
    parser.add_argument("--repetitions", type=int, default=15, help="measurements of each way (default: 15)")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON and the picture")
    parser.add_argument("--docs", action="store_true", help="write docs/results/lars.json, and its picture")
    return parser


def row(ranks: int, cell: dict[str, Any]) -> list[str]:
    """Return the table's row of one model and number of ranks."""
    seconds = {way: cell["seconds"][way]["median"] for way in WAYS}
    times = [show.seconds_text(seconds[way]) for way in WAYS]
    factor = show.ratio_text(seconds["multi-tensor"] / seconds["shared"])
    return [cell["model"], str(ranks), str(cell["layers"]), *times, factor]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    mpirun = launch.find_launcher()
    spec = {"models": arguments.models, "calls": arguments.calls, "repetitions": arguments.repetitions}
    jobs = []
    for ranks in arguments.ranks:
        cells = launch.run_ranks(mpirun, "benchmarks.workers.lars", ranks, spec, 900)[0]["cells"]
        jobs.append({"ranks": ranks, "cells": [measure.summarised(cell) for cell in cells]})
    models = [modelled(name) for name in arguments.models]
    console = show.console()
    if jobs:
        console.print(f"Trust ratios of a step  {others_text([c for job in jobs for c in job['cells']])}")
        rows = [row(job["ranks"], cell) for job in jobs for cell in job["cells"]]
        console.print(show.table(_COLUMNS, rows, texts=1))
    console.print(f"The model, for {Cluster.ranks} GPUs")
    console.print(show.table(_COLUMNS, [row(Cluster.ranks, cell) for cell in models], texts=1))
    stored = (page.RESULTS if arguments.docs else arguments.output) / "lars.json"
    image = page.IMAGES / "lars.png" if arguments.docs else stored.with_suffix(".png")
    found = {"machine": launch.machine(mpirun), "jobs": jobs, "model": models}
    show.save(stored, found)
    picture.draw(bars.trust_ratios, found, image)


def modelled(name: str) -> dict[str, Any]:
    """Return the model's cell of one of the models of SHAPES."""
    sizes = [4 * math.prod(shape) for shape in SHAPES[name]()]
    largest = max(sum(sizes[number] for number in share) for share in shares(sizes, Cluster.ranks))
    seconds = Cluster().seconds(len(sizes), sum(sizes), largest)
    return {
        "model": name,
        "layers": len(sizes),
        "seconds": {way: {"median": one, "low": one, "high": one} for way, one in seconds.items()},
    }


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
