"""Allreduce between two nodes of two ranks over each data plane, beside a plain stream over the same wire.

The nodes are network namespaces of this machine (tests/rig), which need root. Each plane is a job of its own,
in which the stream is measured turn by turn with it: the ratios to it compare the planes.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import launch, show
from benchmarks.report import page
from benchmarks.two_nodes import NODES, RANKS
from tests.rig import Rig

STORED, PART = page.RESULTS / "data_planes.json", page.part(page.RESULTS / "data_planes.md", "data_planes")
_FABRICS = {"shm+tcp": "tcp", "shm+mpi": "mpi"}  # ROUNDELAY_FABRIC, and its name in the table
_COLUMNS = ["wire", "size", "who", "time", "to the stream", "CPU of all ranks", "to the stream"]
_SIZES = ("25M", "100M")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data_planes", description=__doc__)
    parser.add_argument(
        "--mbit", type=int, nargs="+", default=[1000, 10_000, 25_000], help="speeds of the wire"
    )
    parser.add_argument(
        "--sizes", type=show.parse_size, nargs="+", help=f"bytes (default: {' '.join(_SIZES)})"
    )
    parser.add_argument("--repetitions", type=int, default=7, help="measurements of each (default: 7)")
    parser.add_argument("--docs", action="store_true", help="store JSON and table in docs/results")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    return parser


def _measured(mbit: int, fabric: str, sizes: Sequence[int], repetitions: int) -> list[dict[str, Any]]:
    """Measure a plane's cells; Gloo and MPI by themselves too, in one of the jobs."""
    peers = fabric == next(iter(_FABRICS))
    spec = {"sizes": sizes, "repetitions": repetitions, "peers": peers}
    with Rig(NODES, mbit) as rig:
        spec["address"] = rig.address(0)
        variables = {"ROUNDELAY_FABRIC": fabric}
        mpirun = launch.find_launcher()
        worker = "benchmarks.workers.two_nodes"
        found = launch.run_ranks(mpirun, worker, RANKS, spec, 900, rig, variables)[0]
    assert found["fabric"] == fabric, found["fabric"]
    cells: list[dict[str, Any]] = found["cells"]
    return [{"mbit": mbit, "fabric": fabric, **cell} for cell in cells]


def rows(cells: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Make the table's rows: time and CPU, each beside the stream's in the same job."""
    made = []
    for cell in cells:
        wire = f"{cell['mbit'] / 1000:g} Gbit/s"
        stream, stream_cpu = median(cell["seconds"]["stream"]), median(cell["cpu"]["stream"])
        for who, seconds in cell["seconds"].items():
            cpu = median(cell["cpu"][who])
            name = f"roundelay, {_FABRICS[cell['fabric']]}" if who == "roundelay" else f"{who}, beside it"
            times = [show.seconds_text(median(seconds)), f"{median(seconds) / stream:.2f}x"]
            per_gb = f"{cpu / cell['bytes'] * 1e9:.2f} s/GB"
            made.append(
                [wire, show.size_text(cell["bytes"]), name, *times, per_gb, f"{cpu / stream_cpu:.2f}x"]
            )
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    given = _parser().parse_args(argv)
    launch.require_rig("data planes")
    sizes = given.sizes or [show.parse_size(size) for size in _SIZES]
    cells = [
        cell
        for mbit in given.mbit
        for size in sizes
        for fabric in _FABRICS
        for cell in _measured(mbit, fabric, [size], given.repetitions)
    ]
    found: dict[str, Any] = {"machine": launch.machine(launch.find_launcher()), "cells": cells}
    show.console().print(show.table(_COLUMNS, rows(cells)))
    show.save(STORED if given.docs else given.output / "data_planes.json", found)
    if given.docs:
        lines = [f"{page.host(found['machine'], 'mpi')}.", "", *page.rows(_COLUMNS, rows(cells)), ""]
        PART.write("\n".join(lines))


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
