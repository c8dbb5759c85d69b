"""Roundelay's allreduce beside Gloo's and the installed MPI's, turn by turn in one run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, measure, show
from benchmarks.quiet import others_text
from benchmarks.report import lines, picture

_SIZES = ("256", "4K", "64K", "1M", "4M", "25M", "100M")
_QUICK_SIZES = ("256", "64K", "1M")
_DTYPES = ("float32", "float16", "bfloat16")
OWN = ("roundelay", "pool")
PEERS = ("gloo", "mpi")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.allreduce", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="jobs to start (default: 2 4)")
    parser.add_argument(
        "--sizes", type=show.parse_size, nargs="+", help=f"bytes (default: {' '.join(_SIZES)})"
    )
    parser.add_argument("--dtypes", choices=_DTYPES, nargs="+", default=list(_DTYPES))
    parser.add_argument("--repetitions", type=int, help="measurements of each cell (default: 15)")
    parser.add_argument("--quick", action="store_true", help="few sizes and repetitions: under a minute")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON and the plot")
    return parser


def rows(cells: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Make the table's rows: Roundelay's times, then how many times as long each peer takes."""
    made = []
    for cell in cells:
        seconds = cell["seconds"]
        peers = [show.ratio_text(show.ratio(seconds, peer)) for peer in PEERS]
        own = [show.seconds_text(seconds[name]["median"]) for name in OWN]
        made.append([show.SHORT[cell["dtype"]], show.size_text(cell["bytes"]), *own, *peers])
    return made


def reasons(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Say once why cells are empty."""
    found: dict[str, set[str]] = {}
    for cell in cells:
        for peer, why in cell["empty"].items():
            found.setdefault(f"{peer}: {why}", set()).add(show.SHORT[cell["dtype"]])
    return [f"-  {why} ({', '.join(sorted(types))})" for why, types in found.items()]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    default = _QUICK_SIZES if arguments.quick else _SIZES
    spec = {
        "sizes": arguments.sizes or [show.parse_size(size) for size in default],
        "dtypes": arguments.dtypes,
        "bare": False,
        "repetitions": arguments.repetitions or (5 if arguments.quick else 15),
    }
    mpirun = launch.find_launcher()
    console = show.console()
    jobs = []
    for ranks in arguments.ranks:
        timeout = 100 if arguments.quick else 1800
        found = launch.run_ranks(mpirun, "benchmarks.workers.allreduce", ranks, spec, timeout)[0]
        cells = [measure.summarised(cell) for cell in found["cells"]]
        jobs.append({"ranks": ranks, "cells": cells})
        title = f"Allreduce, {ranks} ranks: Roundelay's median, and how many times as long its peers take"
        console.print(title, highlight=False)
        console.print(show.table(["type", "size", *OWN, *PEERS], rows(cells)))
        for line in [*reasons(cells), others_text(cells)]:
            console.print(line, highlight=False)
    result = {"machine": launch.machine(mpirun), "jobs": jobs}
    show.save(arguments.output / "allreduce.json", result)
    picture.draw(lines.allreduce, result, arguments.output / "allreduce.png")


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
