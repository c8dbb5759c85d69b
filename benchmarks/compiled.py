"""Compiled models: how much of their communication hides behind backward, and how long a step takes.

All ways take turns in one job. hvd.compile cuts the model's graph; torch.compile makes one backward of it,
unless DistributedDataParallel runs it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import launch, show
from benchmarks.quiet import others_text
from benchmarks.report import page

STORED, PART = page.RESULTS / "compiled.json", page.part(page.RESULTS / "compiled.md", "compiled")
_OURS, _DDP, _EAGER = "hvd.compile", "DDP with Gloo, torch.compile", "eager"
_COLUMNS = ("model", "way", "step", "under way", "exposed", "hidden", "gradients differ from eager's by")
_LEAST_HIDDEN = 0.7  # of what eager hides


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiled", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2, help="of the job (default: 2)")
    parser.add_argument(
        "--models", nargs="+", default=["transformer", "cnn"], help="(default: transformer cnn)"
    )
    parser.add_argument("--repetitions", type=int, default=41, help="steps of each way (default: 41)")
    parser.add_argument("--docs", action="store_true", help="store JSON and table in docs/results")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    return parser


def hidden(cell: Mapping[str, Any], way: str) -> float:
    """Return the part of the time with communication under way in which the program computed."""
    under_way, exposed = cell["clocks"][way]
    return float(1.0 - exposed / under_way)


def rows(cells: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Make a row for each model and way. Times are of one step."""
    made = []
    for cell in cells:
        for way, seconds in cell["seconds"].items():
            clocks = ["", "", ""]
            if way in cell["clocks"]:
                times = [show.seconds_text(all_ / len(seconds)) for all_ in cell["clocks"][way]]
                clocks = [*times, f"{hidden(cell, way):.0%}"]
            apart = f"{cell['apart'][way]:.1e}" if way in cell["apart"] else ""
            made.append([cell["model"], way, show.seconds_text(median(seconds)), *clocks, apart])
    return made


def goals(cell: Mapping[str, Any]) -> list[str]:
    """Say which goals a model misses."""
    missed = []
    ours, eager = hidden(cell, _OURS), hidden(cell, _EAGER)
    if ours < _LEAST_HIDDEN * eager:
        missed.append(f"{cell['model']}: {ours:.0%} hidden, eager {eager:.0%} (goal: {_LEAST_HIDDEN} of it)")
    steps = {way: median(seconds) for way, seconds in cell["seconds"].items()}
    if steps[_OURS] > steps[_DDP]:
        missed.append(f"{cell['model']}: a step takes {steps[_OURS] / steps[_DDP]:.2f} of compiled DDP's")
    return missed


def document(cells: Sequence[Mapping[str, Any]], machine: Mapping[str, Any], ranks: int) -> str:
    """Make the page's text."""
    missed = [line for cell in cells for line in goals(cell)]
    lines = [f"{ranks} ranks, {page.host(machine, 'torch')}.", "", *page.rows(_COLUMNS, rows(cells)), ""]
    lines += ["Goals that are missed:" if missed else "All goals are met.", *(f"- {line}" for line in missed)]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    mpirun = launch.find_launcher()
    spec = {"models": arguments.models, "repetitions": arguments.repetitions}
    cells = launch.run_ranks(mpirun, "benchmarks.workers.compiled", arguments.ranks, spec, 1800)[0]["cells"]
    show.console().print(show.table(_COLUMNS, rows(cells)))
    show.console().print(others_text(cells), highlight=False)
    for cell in cells:
        for line in goals(cell):
            print(f"- {line}")
    machine = launch.machine(mpirun)
    result = {"machine": machine, "ranks": arguments.ranks, "cells": cells}
    show.save(STORED if arguments.docs else arguments.output / "compiled.json", result)
    if arguments.docs:
        PART.write(document(cells, machine, arguments.ranks))


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
