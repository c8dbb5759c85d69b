"""Draws a few steps of DASO on two nodes with a slow wire: transfers are under way while ranks train on.

The nodes are network namespaces of this machine (tests/rig), which need root.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, show
from roundelay.timeline.cli import main as roundelay_timeline
from tests.rig import Rig

_NODES, _A_NODE = 2, 2
_SHOWN = slice(8, 17)  # two cycles, and the step that begins the third
_COLUMNS = ("rank", "transfers", "mean time", "steps that one spans", "merges that were late")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.averaging.timeline", description=__doc__)
    parser.add_argument("--global-skip", type=int, default=4, help="B, steps from transfer to transfer")
    parser.add_argument(
        "--batches-to-wait", type=int, default=3, help="S, steps from a transfer to its merge"
    )
    parser.add_argument("--mbit", type=int, default=200, help="the wire's speed, Mbit/s (default: 200)")
    parser.add_argument("--timeline", type=Path, default=Path("out/daso_timeline.json"))
    parser.add_argument("--picture", type=Path, default=Path("out/daso_timeline.png"), help="a .png or .svg")
    return parser.parse_args(argv)


def _row(found: dict[str, Any]) -> list[str]:
    times, spans = found["seconds"], found["spans"]
    mean = show.seconds_text(sum(times) / len(times)) if times else ""
    each = " to ".join(map(str, sorted({min(spans), max(spans)}))) if spans else ""
    return [str(found["rank"]), str(len(times)), mean, each, str(found["late"])]


def record(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Train on a rig, draw the picture, and return each rank's transfers."""
    arguments.timeline.parent.mkdir(parents=True, exist_ok=True)
    spec = {
        "global_skip": arguments.global_skip,
        "batches_to_wait": arguments.batches_to_wait,
        "steps": _SHOWN.stop + arguments.batches_to_wait,
        "timeline": str(arguments.timeline.resolve()),
    }
    mpirun = launch.find_launcher()
    with Rig(_NODES, arguments.mbit) as rig:
        ranks = launch.run_ranks(mpirun, "benchmarks.workers.daso_timeline", _NODES * _A_NODE, spec, 300, rig)
    shown = f"{_SHOWN.start}:{_SHOWN.stop}"
    if code := roundelay_timeline([spec["timeline"], "--steps", shown, "--output", str(arguments.picture)]):
        raise launch.JobError("the picture could not be drawn", code)
    return ranks


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = parse(argv)
    launch.require_rig("two nodes")
    ranks = record(arguments)
    console = show.console()
    console.print(
        f"2 nodes of 2 ranks, {arguments.mbit} Mbit/s, B = {arguments.global_skip}, "
        f"S = {arguments.batches_to_wait}, {show.size_text(ranks[0]['bytes'])} of parameters",
        highlight=False,
    )
    console.print(show.table(_COLUMNS, [_row(found) for found in ranks]))


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
