"""Collectives over levels beside flat ones, turn by turn: the bytes that come into a node, and the time.

The nodes are network namespaces of this machine (tests/rig), which need root. Each operation works on a
vector of S bytes: an allgather brings it together, a reducescatter leaves its parts with the ranks, and a
broadcast's root is the last rank. Over levels the bytes that come into each node are the minimum possible.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import launch, show
from benchmarks.quiet import others_text
from benchmarks.report import collectives as pictures
from benchmarks.report import page, picture
from benchmarks.workers.operations import OPERATIONS
from tests.rig import Rig

FLAT, LEVELS = "flat", "levels"
_WAYS = (FLAT, LEVELS)
_WIRES = ("tcp", "mpi")
_RECEIVED = "/sys/class/net/eth0/statistics/rx_bytes"
_HEADERS = 1.05  # of TCP and IP, and acknowledgements
_COLUMNS = ("operation", "S", "least", "flat", "levels", "flat", "levels", "flat / levels")
STORED, PART = page.RESULTS / "collectives.json", page.part(page.RESULTS / "fabrics.md", "collectives")
PICTURE = page.IMAGES / "collectives.png"


@dataclass(frozen=True)
class Plan:
    """Nodes of equally many ranks, on links of a rate."""

    nodes: int
    members: int
    mbit: int
    sizes: tuple[str, ...]

    @property
    def text(self) -> str:
        """Name it."""
        return f"{self.nodes} nodes of {self.members} ranks, {self.mbit} Mbit/s"


_STORED_PLANS = (
    Plan(2, 2, 1000, ("64K", "1M", "25M")),
    Plan(2, 4, 1000, ("64K", "1M", "25M")),
    Plan(3, 2, 1000, ("64K", "1M", "25M")),
    Plan(2, 2, 100, ("64K", "1M")),
)


def least(operation: str, nodes: int) -> float:
    """Return the bytes that must come into each of the nodes, for each byte of the vector."""
    others = (nodes - 1) / nodes
    return {"allreduce": 2 * others, "broadcast": 1.0}.get(operation, others)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.collectives", description=__doc__)
    parser.add_argument("--nodes", type=int, default=2, help="default: 2")
    parser.add_argument("--ranks-per-node", type=int, default=2, help="default: 2")
    parser.add_argument("--mbit", type=int, default=1000, help="a node's rate, Mbit/s (default: 1000)")
    parser.add_argument(
        "--wire", choices=_WIRES, default=_WIRES[0], help="the fabric between nodes (default: tcp)"
    )
    parser.add_argument("--sizes", nargs="+", default=["64K", "1M", "25M"], help="default: 64K 1M 25M")
    parser.add_argument("--operations", nargs="+", choices=list(OPERATIONS), help="default: all")
    parser.add_argument("--repetitions", type=int, default=7, help="measurements of each (default: 7)")
    parser.add_argument("--docs", action="store_true", help="measure all stored plans, and store all in docs")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    return parser


def measured(plan: Plan, wire: str, operations: Sequence[str], repetitions: int) -> dict[str, Any]:
    """Measure a plan's cells, with a fabric between the nodes."""
    mpirun = launch.find_launcher()
    spec = {
        "operations": operations,
        "sizes": [show.parse_size(size) for size in plan.sizes],
        "repetitions": repetitions,
        "ways": {FLAT: {"ROUNDELAY_FABRIC": wire}, LEVELS: {"ROUNDELAY_FABRIC": f"shm+{wire}"}},
        "uplinks": [_RECEIVED],
        "addresses": [],
    }
    with Rig(plan.nodes, plan.mbit) as rig:
        ranks = plan.nodes * plan.members
        found = launch.run_ranks(mpirun, "benchmarks.workers.ways", ranks, spec, 1800, rig)[0]
    return {"nodes": plan.nodes, "members": plan.members, "mbit": plan.mbit, "name": plan.text, **found}


def rows(found: Mapping[str, Any]) -> list[list[str]]:
    """Make the rows of a plan: the bytes into a node, the times, and their ratio."""
    made = []
    for cell in found["cells"]:
        times = {way: median(cell["seconds"][way]) for way in _WAYS}
        made.append(
            [
                cell["operation"],
                show.size_text(cell["bytes"]),
                show.size_text(round(least(cell["operation"], found["nodes"]) * cell["bytes"])),
                *(show.size_text(round(cell["sent"][way])) for way in _WAYS),
                *(show.seconds_text(times[way]) for way in _WAYS),
                f"{times[FLAT] / times[LEVELS]:.2f}x",
            ]
        )
    return made


def _most_of_flat(cell: Mapping[str, Any], members: int) -> float:
    """Return the goal for the time over levels, as a part of flat's; infinity: there is none."""
    if cell["operation"] == "broadcast":
        return 1.0
    moves = cell["operation"] in ("allgather", "reducescatter") and cell["bytes"] >= 25 << 20
    return 1.1 / members if moves else math.inf


def goals(found: Mapping[str, Any]) -> list[str]:
    """Say which goals a plan misses: bytes over levels, time at 25 MiB, and no broadcast slower than flat."""
    missed = []
    for cell in found["cells"]:
        name = f"{found['name']}: {cell['operation']} of {show.size_text(cell['bytes'])}"
        flat, levels = (median(cell["seconds"][way]) for way in _WAYS)
        factor = cell["sent"][LEVELS] / (least(cell["operation"], found["nodes"]) * cell["bytes"])
        if cell["bytes"] >= 1 << 20 and factor > _HEADERS:
            missed.append(f"{name} brings {factor:.2f} times the least bytes into a node")
        wanted = _most_of_flat(cell, found["members"])
        if levels > wanted * flat:
            missed.append(f"{name} takes {levels / flat:.2f} of flat's time (goal: {wanted:.2f})")
    return missed


def document(stored: Mapping[str, Any]) -> str:
    """Make the page's text of stored results."""
    lines = [f"{page.host(stored['machine'])}. Fabric `{stored['wire']}` between nodes.", ""]
    for found in stored["plans"]:
        title = f"**{found['name']}**: bytes into a node, and times"
        lines += [title, "", *page.rows(_COLUMNS, rows(found)), ""]
    missed = [line for found in stored["plans"] for line in goals(found)]
    lines += ["Goals that are missed:" if missed else "All goals are met.", *(f"- {line}" for line in missed)]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    launch.require_rig("nodes")
    own = Plan(arguments.nodes, arguments.ranks_per_node, arguments.mbit, tuple(arguments.sizes))
    operations = arguments.operations or list(OPERATIONS)
    machine = launch.machine(launch.find_launcher())
    stored: dict[str, Any] = {"machine": machine, "wire": arguments.wire, "plans": []}
    for plan in _STORED_PLANS if arguments.docs else (own,):
        found = measured(plan, arguments.wire, operations, arguments.repetitions)
        stored["plans"].append(found)
        show.console().print(plan.text, show.table(_COLUMNS, rows(found), 1), others_text(found["cells"]))
    for line in (line for found in stored["plans"] for line in goals(found)):
        print(f"- {line}")
    show.save(STORED if arguments.docs else arguments.output / "collectives.json", stored)
    drawn = PICTURE if arguments.docs else arguments.output / "collectives.png"
    picture.draw(pictures.collectives, stored, drawn)
    if arguments.docs:
        PART.write(document(stored))


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
