"""Allreduce over two racks of two nodes of two ranks, by several ways through the levels, turn by turn.

The uplinks of the racks have a quarter of the nodes' rate. Racks and nodes are network namespaces of this
machine (tests/rig), which need root. For an allreduce of S bytes an uplink carries at least: 1.75 S by a ring
of all ranks, 2 S by two levels with a pairwise exchange between nodes, 1.5 S by two levels with a ring, and
S by three levels. Plain TCP streams of S bytes over the uplinks are the floor.
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
from benchmarks.workers.ways import STREAM
from tests.rig import RackRig

RACKS, NODES, RANKS = 2, 2, 2  # racks, nodes of a rack, ranks of a node
FLAT_RING, TWO, RING, THREE = "flat ring", "two levels", "two levels, ring", "three levels"
# The bytes over each uplink, for one byte of the sum.
FORMULA = {FLAT_RING: 1.75, TWO: 2.0, RING: 1.5, THREE: 1.0, STREAM: 1.0}
_SIZES = ("4K", "64K", "1M", "25M")
_COLUMNS = ("size", "way", "over an uplink", "to the formula", "time", "to streams", "CPU, all ranks")
STORED, PART = page.RESULTS / "levels.json", page.part(page.RESULTS / "topology.md", "levels")


def ways(topology: str) -> dict[str, dict[str, str]]:
    """Tell the variables of each way."""
    levels = {"ROUNDELAY_FACTORS": f"{RANKS},{RACKS * NODES}"}
    return {
        FLAT_RING: {"ROUNDELAY_FABRIC": "mpi", "ROUNDELAY_ALGORITHM": "ring"},
        TWO: levels,
        RING: {**levels, "ROUNDELAY_ALGORITHM": "ring"},
        THREE: {
            "ROUNDELAY_TOPOLOGY": topology,
            "ROUNDELAY_FACTORS": f"{RANKS},{NODES},{RACKS}",
        },
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.levels", description=__doc__)
    parser.add_argument(
        "--sizes", type=show.parse_size, nargs="+", help=f"bytes (default: {' '.join(_SIZES)})"
    )
    parser.add_argument("--mbit", type=int, default=1000, help="a node's rate, Mbit/s (default: 1000)")
    parser.add_argument("--uplink-mbit", type=int, help="a rack's rate (default: a quarter of it)")
    parser.add_argument("--ways", choices=list(FORMULA), nargs="+", help="default: all")
    parser.add_argument("--repetitions", type=int, default=9, help="measurements of each (default: 9)")
    parser.add_argument("--quick", action="store_true", help="25 MiB, twice")
    parser.add_argument("--docs", action="store_true", help="store JSON and table in docs/results")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    return parser


def bytes_ratio(cell: Mapping[str, Any], way: str) -> float:
    """Compare the bytes over an uplink with the formula. Streams tell the wire's bytes for one of ours."""
    per_byte = float(cell["sent"][STREAM]) / FORMULA[STREAM]
    return float(cell["sent"][way]) / per_byte / FORMULA[way]


def rows(cells: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Make the table's rows: the bytes over an uplink, the time and CPU time, and the ratios."""
    made = []
    for cell in cells:
        floor = median(cell["seconds"][STREAM])
        for way, seconds in cell["seconds"].items():
            own = median(seconds)
            made.append(
                [
                    show.size_text(cell["bytes"]),
                    way,
                    show.size_text(round(cell["sent"][way])),
                    f"{bytes_ratio(cell, way):.3f}x",
                    show.seconds_text(own),
                    f"{own / floor:.2f}x",
                    f"{1e9 * median(cell['cpu'][way]) / cell['bytes']:.2f} ns/B",
                ]
            )
    return made


def document(found: Mapping[str, Any]) -> str:
    """Make the page's text of a stored result."""
    host = page.host(found["machine"], "mpi")
    heading = f"{found['mbit']} Mbit/s per node, {found['uplink_mbit']} Mbit/s per uplink; {host}."
    disturbed = others_text(found["cells"]).lstrip("- ").capitalize() + "."
    return "\n".join([heading, disturbed, "", *page.rows(_COLUMNS, rows(found["cells"]))]) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    launch.require_rig("racks")
    mpirun = launch.find_launcher()
    default = _SIZES[-1:] if arguments.quick else _SIZES
    uplink = arguments.uplink_mbit or arguments.mbit // 4
    with RackRig(RACKS, NODES, arguments.mbit, uplink) as rig:
        wanted = arguments.ways or list(FORMULA)
        spec = {
            "sizes": arguments.sizes or [show.parse_size(size) for size in default],
            "repetitions": 2 if arguments.quick else arguments.repetitions,
            "ways": {way: variables for way, variables in ways(rig.topology).items() if way in wanted},
            "uplinks": [str(path) for path in rig.uplink_counters],
            "addresses": [rig.address(node) for node in range(rig.nodes)],
        }
        ranks = rig.nodes * RANKS
        found = launch.run_ranks(mpirun, "benchmarks.workers.ways", ranks, spec, 900, rig)[0]
    console = show.console()
    racks = f"{RACKS} racks of {NODES} nodes of {RANKS} ranks"
    console.print(f"Allreduce, {racks}, {arguments.mbit} Mbit/s, uplinks {uplink} Mbit/s", highlight=False)
    console.print(show.table(_COLUMNS, rows(found["cells"])))
    console.print(others_text(found["cells"]), highlight=False)
    found = {"machine": launch.machine(mpirun), "mbit": arguments.mbit, "uplink_mbit": uplink, **found}
    show.save(STORED if arguments.docs else arguments.output / "levels.json", found)
    if arguments.docs:
        PART.write(document(found))


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
