"""The selection of the largest magnitudes: MSTopK and radix beside torch.topk, argpartition and DGC's sample.

One thread of one process. All take turns in each repetition, and return values and indices. The times are CPU
times, because each way keeps its thread busy. So other processes delay nothing, but share caches and memory.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import roundelay.torch as hvd
from benchmarks import launch, measure, show
from benchmarks.quiet import others_text
from benchmarks.report import bars, page, picture
from benchmarks.table.result import Estimate
from benchmarks.table.samples import Samples

Found = tuple[torch.Tensor, torch.Tensor]  # values, indices

SAMPLINGS = 20
READS = math.ceil(SAMPLINGS / 4) + 3  # of the data, by a plain MSTopK with four steps in one read
GOALS = {"torch.topk / mstopk": ">= 5", "argpartition / auto": ">= 2", "mstopk / reads": "<= 2"}
OURS = ("mstopk", "auto")
PEERS = ("torch.topk", "argpartition", "sampled")
COLUMNS = ("values", "distribution", "k", *OURS, *PEERS, f"{READS} reads", *GOALS, "energy")
PART = page.part(page.RESULTS / "topk.md", "top_k")

_SIZES, _FULL_SIZES = (1 << 20, 16 << 20), (1 << 20, 16 << 20, 64 << 20)
_DENSITIES = (0.001, 0.01, 0.1)
_DGC_SAMPLE = 0.01  # the part of the values that DGC samples


@dataclass(frozen=True)
class Shape:
    """The values of a measurement: their number, their distribution, and the part that is selected."""

    size: int
    distribution: str
    density: float

    @property
    def k(self) -> int:
        """Return how many values are selected."""
        return max(1, int(self.size * self.density))


def shapes(sizes: Sequence[int]) -> list[Shape]:
    """Return what to measure: all densities of a normal distribution, and one density of the others."""
    return [
        shape
        for size in sizes
        for shape in (
            *(Shape(size, "normal", density) for density in _DENSITIES),
            Shape(size, "exponential", 0.01),
            Shape(size, "heavy-tailed", 0.01),
        )
    ]


def drawn(shape: Shape) -> torch.Tensor:
    """Draw the values, with random signs, the same ones each time."""
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(shape.size, generator=generator)
    if shape.distribution == "normal":
        return normal
    if shape.distribution == "exponential":
        return normal.sign() * torch.empty_like(normal).exponential_(generator=generator)
    return normal**3


def topk(tensor: torch.Tensor, k: int) -> Found:
    """Select with torch.topk."""
    indices = tensor.abs().topk(k, sorted=False).indices
    return tensor[indices], indices


def argpartition(tensor: torch.Tensor, k: int) -> Found:
    """Select with numpy's introselect, which uses SIMD."""
    indices = torch.from_numpy(np.argpartition(np.abs(tensor.numpy()), tensor.numel() - k)[-k:])
    return tensor[indices], indices


def sampled(tensor: torch.Tensor, k: int) -> Found:
    """Select by a threshold from a random sample, as DGC does: about k values, and at most k."""
    magnitudes = tensor.abs()
    size = max(1, int(_DGC_SAMPLE * tensor.numel()))
    sample = magnitudes[torch.randint(tensor.numel(), (size,))]
    threshold = sample.topk(max(1, size * k // tensor.numel()), sorted=False).values.min()
    indices = (magnitudes >= threshold).nonzero().flatten()
    if indices.numel() > k:
        indices = indices[magnitudes[indices].topk(k, sorted=False).indices]
    return tensor[indices], indices


def ways(tensor: torch.Tensor, k: int) -> dict[str, Callable[[], Found]]:
    """Return the ways to select k values."""
    return {
        "mstopk": lambda: hvd.mstopk(tensor, k, SAMPLINGS),
        "auto": lambda: hvd.mstopk(tensor, k, select="auto"),
        "torch.topk": lambda: topk(tensor, k),
        "argpartition": lambda: argpartition(tensor, k),
        "sampled": lambda: sampled(tensor, k),
    }


def energy(values: torch.Tensor) -> float:
    """Return the sum of squares."""
    return float(values.double().square().sum())


def _cpu_seconds(run: Callable[[], object]) -> float:
    begin = time.thread_time()
    run()
    return time.thread_time() - begin


def measured(shape: Shape, repetitions: int) -> dict[str, Any]:
    """Measure all ways on one shape."""
    tensor = drawn(shape)
    known = ways(tensor, shape.k)
    best = energy(known["torch.topk"]()[0])
    energies = {name: energy(way()[0]) / best for name, way in known.items()}

    def turn(run: Callable[[], object]) -> measure.Turn:
        return lambda: [_cpu_seconds(run)]

    turns = {name: turn(way) for name, way in known.items()}
    found = measure.in_turn({**turns, "read": turn(tensor.sum)}, repetitions, warmups=1)
    seconds = found.single()
    seconds["reads"] = [READS * one for one in seconds.pop("read")]
    samples = Samples(seconds, found.others)
    if samples.why_not:  # then all repetitions count, and the page says so
        samples = Samples(seconds, [0.0] * repetitions)
    ratios = {goal: samples.ratio(*goal.split(" / ")) for goal in GOALS}
    return {
        **dataclasses.asdict(shape),
        "k": shape.k,
        "seconds": {name: measure.summary(own) for name, own in seconds.items()},
        "ratios": {name: dataclasses.asdict(ratio) for name, ratio in ratios.items()},
        "energy": energies,
        "others": found.others,
    }


def row(cell: dict[str, Any], intervals: bool) -> list[str]:
    """Return the table's row of one shape, with the intervals of the ratios or without."""
    times = [show.seconds_text(cell["seconds"][name]["median"]) for name in (*OURS, *PEERS, "reads")]
    ratios = [Estimate(**cell["ratios"][goal]) for goal in GOALS]
    texts = [show.quantity(one.value, "x") for one in ratios]
    if intervals:
        bounds = [show.interval(one.low, one.high, "x") for one in ratios]
        texts = [text + bound for text, bound in zip(texts, bounds, strict=True)]
    size = f"{cell['size'] / (1 << 20):g}M"
    return [size, cell["distribution"], f"{cell['density']:.1%}", *times, *texts, f"{energy_of(cell):.5f}"]


def energy_of(cell: dict[str, Any]) -> float:
    """Return MSTopK's energy as a part of that of the exact k largest."""
    return float(cell["energy"]["mstopk"])


def verdicts(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Say for each goal how many shapes meet it, and the worst ratio."""
    said = []
    for goal, limit in GOALS.items():
        sign, _, number = limit.partition(" ")
        values = [cell["ratios"][goal]["value"] for cell in cells]
        met = sum(value <= float(number) if sign == "<=" else value >= float(number) for value in values)
        worst = max(values) if sign == "<=" else min(values)
        said.append(f"{goal}, goal {limit}: {met} of {len(values)} meet it, the worst is {worst:.3g}x")
    return said


def page_text(found: dict[str, Any]) -> str:
    """Make the page's part: the table and what it says."""
    cells = found["cells"]
    machine = f"CPU time of one thread of an {found['machine']['cpu']}, medians, 95 % intervals"
    table = page.rows(COLUMNS, [row(cell, True) for cell in cells])
    said = [f"- {verdict}" for verdict in verdicts(cells)]
    heading = page.folded(f"{machine} {others_text(cells)}.")
    return "\n".join([heading, "", *table, "", *said, ""])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.top_k", description=__doc__)
    parser.add_argument("--full", action="store_true", help="64M values too, as --docs has")
    parser.add_argument("--sizes", type=show.parse_size, nargs="+", help="numbers of values, like 1M")
    parser.add_argument("--repetitions", type=int, default=9, help="turns of each way (default: 9)")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON and the picture")
    parser.add_argument("--docs", action="store_true", help="write docs/results/topk.* instead")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    torch.set_num_threads(1)
    sizes = arguments.sizes or (_FULL_SIZES if arguments.full or arguments.docs else _SIZES)
    cells = [measured(shape, arguments.repetitions) for shape in shapes(sizes)]
    console = show.console()
    console.print(f"The k largest magnitudes, one thread  {others_text(cells)}")
    console.print(show.table(COLUMNS, [row(cell, False) for cell in cells], texts=2))
    for verdict in verdicts(cells):
        console.print(verdict, highlight=False)
    stored = PART.page.with_suffix(".json") if arguments.docs else arguments.output / "top_k.json"
    image = page.IMAGES / "top_k.png" if arguments.docs else stored.with_suffix(".png")
    show.save(stored, {"machine": launch.machine(launch.find_launcher()), "cells": cells})
    found = page.read(stored)
    picture.draw(bars.selections, found, image)
    if arguments.docs:
        PART.write(page_text(found))


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
