"""Allreduce between two nodes of two ranks beside a plain TCP stream over the same wire, turn by turn.

The nodes are network namespaces of this machine (tests/rig), which need root.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import launch, show
from tests.rig import Rig

NODES = 2
RANKS = 4
_SIZES = ("25M", "100M")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_nodes", description=__doc__)
    parser.add_argument(
        "--sizes", type=show.parse_size, nargs="+", help=f"bytes (default: {' '.join(_SIZES)})"
    )
    parser.add_argument("--mbit", type=int, default=1000, help="the wire's speed, Mbit/s (default: 1000)")
    parser.add_argument("--repetitions", type=int, default=9, help="measurements of each (default: 9)")
    parser.add_argument("--peers", action="store_true", help="Gloo, MPI and one by hand too")
    parser.add_argument("--quick", action="store_true", help="25 MiB, twice")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    return parser


def rows(cells: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Make the table's rows: the bytes that a node sent, the time, and the ratio of both to the stream's."""
    made = []
    for cell in cells:
        for who, all_seconds in cell["seconds"].items():
            seconds, sent = median(all_seconds), cell["sent"][who]
            made.append(
                [
                    show.size_text(cell["bytes"]),
                    who,
                    show.size_text(sent),
                    f"{sent / cell['sent']['stream']:.3f}x",
                    show.seconds_text(seconds),
                    f"{seconds / median(cell['seconds']['stream']):.3f}x",
                    f"{1e9 * median(cell['cpu'][who]) / cell['bytes']:.2f} ns/B",
                ]
            )
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    launch.require_rig("two nodes")
    mpirun = launch.find_launcher()
    default = _SIZES[:1] if arguments.quick else _SIZES
    spec = {
        "sizes": arguments.sizes or [show.parse_size(size) for size in default],
        "repetitions": 2 if arguments.quick else arguments.repetitions,
        "peers": arguments.peers,
    }
    with Rig(NODES, arguments.mbit) as rig:
        spec["address"] = rig.address(0)
        found = launch.run_ranks(mpirun, "benchmarks.workers.two_nodes", RANKS, spec, 600, rig)[0]
    console = show.console()
    title = f"Allreduce, 2 nodes of 2 ranks, {arguments.mbit} Mbit/s, fabric {found['fabric']}"
    console.print(f"{title}: what a node sends, and the time, beside a plain TCP stream's", highlight=False)
    columns = ["size", "who", "sent", "to stream", "time", "to stream", "CPU, all ranks"]
    console.print(show.table(columns, rows(found["cells"])))
    found = {"machine": launch.machine(mpirun), "mbit": arguments.mbit, **found}
    show.save(arguments.output / "two_nodes.json", found)


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
