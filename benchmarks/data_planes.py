"""Allreduce between two nodes of two ranks over each data plane, beside a plain stream over the same wire.

The nodes are network namespaces of this machine (tests/rig), which need root. Each plane is a job of its own,
in which the stream is measured turn by turn with it: the ratios to it compare the planes. The bare sums
(benchmarks/bare.cc) are measured before each job.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import bare, launch, show
from benchmarks.report import page
from benchmarks.two_nodes import NODES, RANKS
from tests.rig import Rig

STORED, PART = page.RESULTS / "data_planes.json", page.part(page.RESULTS / "data_planes.md", "data_planes")
_FABRICS = {"shm+tcp": "tcp", "shm+mpi": "mpi"}  # ROUNDELAY_FABRIC, and its name in the table
_COLUMNS = ["wire", "size", "who", "time", "to the stream", "CPU of all ranks", "to stream and sums"]
_SUMS = NODES + 1  # sums of two parts that all ranks need: of the ranks of each node, and of the nodes
_SLOW_MBIT, _MOST_TIME_SLOW = 1000, 1.03
_MOST_TIME, _MOST_CPU = 1.15, 1.1  # to the stream's; to that of the stream and of the bare sums
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


def _bare_cpu(size: int, repetitions: int) -> float:
    """Return the CPU time of the sums that an allreduce between the nodes needs, with nothing around them."""
    with tempfile.TemporaryDirectory() as folder:
        program = bare.Program(bare.build(Path(folder)), 2, size)
        seconds = [program.measure() for _ in range(repetitions + 1)]
    return _SUMS * 2 * median(seconds[1:])


def _measured(mbit: int, fabric: str, size: int, repetitions: int) -> dict[str, Any]:
    """Measure a plane's cell; in one of the jobs also Gloo, MPI and an allreduce by hand."""
    peers = fabric == next(iter(_FABRICS))
    spec = {"sizes": [size], "repetitions": repetitions, "peers": peers}
    sums = _bare_cpu(size, repetitions)
    with Rig(NODES, mbit) as rig:
        spec["address"] = rig.address(0)
        variables = {"ROUNDELAY_FABRIC": fabric}
        mpirun = launch.find_launcher()
        worker = "benchmarks.workers.two_nodes"
        found = launch.run_ranks(mpirun, worker, RANKS, spec, 900, rig, variables)[0]
    assert found["fabric"] == fabric, found["fabric"]
    return {"mbit": mbit, "fabric": fabric, "bare_cpu": sums, **found["cells"][0]}


def needed_cpu(cell: Mapping[str, Any]) -> float:
    """Return the CPU time of the stream and of the bare sums."""
    return float(median(cell["cpu"]["stream"]) + cell["bare_cpu"])


def goals(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say where fabric tcp needs more than the goals allow."""
    missed = []
    for cell in cells:
        if _FABRICS[cell["fabric"]] != "tcp":
            continue
        took = median(cell["seconds"]["roundelay"]) / median(cell["seconds"]["stream"])
        cpu = median(cell["cpu"]["roundelay"]) / needed_cpu(cell)
        name = f"{cell['mbit'] / 1000:g} Gbit/s, {show.size_text(cell['bytes'])}"
        if cell["mbit"] <= _SLOW_MBIT and took > _MOST_TIME_SLOW:
            missed.append(f"{name}: {took:.2f} times the stream's time (goal: {_MOST_TIME_SLOW})")
        elif took > _MOST_TIME and cpu > _MOST_CPU:
            both = f"{took:.2f} times the stream's time, {cpu:.2f} times the CPU"
            if "pool" in cell["cpu"]:  # without the copies into shared memory and out of it
                both += f", {median(cell['cpu']['pool']) / needed_cpu(cell):.2f} times in a pool"
            missed.append(f"{name}: {both} (goal: {_MOST_TIME} or {_MOST_CPU})")
    return missed


def rows(cells: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Make the table's rows: time and CPU, each beside the stream's in the same job."""
    made = []
    for cell in cells:
        wire = f"{cell['mbit'] / 1000:g} Gbit/s"
        stream, needed = median(cell["seconds"]["stream"]), needed_cpu(cell)
        for who, seconds in cell["seconds"].items():
            cpu = median(cell["cpu"][who])
            plane = _FABRICS[cell["fabric"]]
            own = {"roundelay": f"roundelay, {plane}", "pool": f"roundelay, {plane}, in a pool"}
            name = own.get(who, f"{who}, beside it")
            times = [show.seconds_text(median(seconds)), f"{median(seconds) / stream:.2f}x"]
            per_gb = f"{cpu / cell['bytes'] * 1e9:.2f} s/GB"
            made.append([wire, show.size_text(cell["bytes"]), name, *times, per_gb, f"{cpu / needed:.2f}x"])
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    given = _parser().parse_args(argv)
    launch.require_rig("data planes")
    sizes = given.sizes or [show.parse_size(size) for size in _SIZES]
    cells = [
        _measured(mbit, fabric, size, given.repetitions)
        for mbit in given.mbit
        for size in sizes
        for fabric in _FABRICS
    ]
    found: dict[str, Any] = {"machine": launch.machine(launch.find_launcher()), "cells": cells}
    show.console().print(show.table(_COLUMNS, rows(cells)))
    for line in goals(cells):
        print(f"- {line}")
    show.save(STORED if given.docs else given.output / "data_planes.json", found)
    if given.docs:
        missed = goals(cells)
        said = "Goals of `shm+tcp` that are missed:" if missed else "`shm+tcp` meets its goals."
        table = page.rows(_COLUMNS, rows(cells))
        host = page.host(found["machine"], "mpi")
        lines = [f"{host}.", "", *table, "", said, *(f"- {line}" for line in missed), ""]
        PART.write("\n".join(lines))


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
