"""A training step with Roundelay beside DDP, plain Gloo and no communication, turn by turn in one run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, measure, show
from benchmarks.models import available
from benchmarks.quiet import others_text
from benchmarks.report import bars, picture

_QUICK_MODELS = ("mlp",)
_MODELS = [name for name in available() if name != "gpt2"]  # gpt2 takes a gigabyte per rank
PEERS = ("ddp", "gloo")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.train_step", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="jobs to start (default: 2 4)")
    parser.add_argument("--models", choices=available(), nargs="+", help=f"default: {' '.join(_MODELS)}")
    parser.add_argument("--repetitions", type=int, help="steps of each (default: 21)")
    parser.add_argument("--quick", action="store_true", help="one model, few steps: under a minute")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON and the plot")
    return parser


def summarised(cell: dict[str, Any]) -> dict[str, Any]:
    """Summarise the steps, and the time that each way adds to the step without communication."""
    seconds = cell["seconds"]
    exposed = {
        name: measure.summary([step - alone for step, alone in zip(own, seconds["none"], strict=True)])
        for name, own in seconds.items()
        if name != "none"
    }
    return {**measure.summarised(cell), "exposed": exposed}


def rows(cells: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Make the table's rows: the step alone, the time that communication adds, the peers' ratios."""
    made = []
    for cell in cells:
        seconds = cell["seconds"]
        steps = [show.seconds_text(seconds[name]["median"]) for name in ("none", "roundelay")]
        exposed = [show.seconds_text(cell["exposed"][name]["median"]) for name in ("roundelay", *PEERS)]
        peers = [show.ratio_text(show.ratio(seconds, peer)) for peer in PEERS]
        what = f"{cell['tensors']} tensors, {show.size_text(cell['bytes'])}"
        made.append([cell["model"], what, *steps, *peers, *exposed])
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    spec = {
        "ways": ["none", "roundelay", *PEERS],
        "models": arguments.models or (list(_QUICK_MODELS) if arguments.quick else _MODELS),
        "repetitions": arguments.repetitions or (5 if arguments.quick else 21),
        "bare": False,
    }
    mpirun = launch.find_launcher()
    console = show.console()
    columns = [
        "model",
        "gradients",
        "alone",
        "roundelay",
        *PEERS,
        "exposed",
        *(f"exposed {peer}" for peer in PEERS),
    ]
    jobs = []
    for ranks in arguments.ranks:
        timeout = 100 if arguments.quick else 1800
        found = launch.run_ranks(mpirun, "benchmarks.workers.train_step", ranks, spec, timeout)[0]
        cells = [summarised(cell) for cell in found["cells"]]
        jobs.append({"ranks": ranks, "cells": cells})
        title = (
            f"Training step, {ranks} ranks: alone, with Roundelay, and how many times as long with its peers"
        )
        console.print(title, highlight=False)
        console.print(show.table(columns, rows(cells)))
        console.print(others_text(cells), highlight=False)
    result = {"machine": launch.machine(mpirun), "jobs": jobs}
    show.save(arguments.output / "train_step.json", result)
    picture.draw(bars.train_step, result, arguments.output / "train_step.png")


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
