"""Several buckets at once over two nodes of two ranks: one is in its node while another is on the wire.

The nodes are network namespaces of this machine (tests/rig), which need root. The times come from the
timeline.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks import launch, show
from benchmarks.two_nodes import NODES, RANKS
from roundelay.timeline.cli import main as roundelay_timeline
from tests.rig import Rig

_COLUMNS = ["rank", "in the node", "between nodes", "both", "of two buckets", "most at once"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_nodes_overlap", description=__doc__)
    parser.add_argument(
        "--size", type=show.parse_size, default=2 << 20, help="bytes of a bucket (default: 2M)"
    )
    parser.add_argument("--buckets", type=int, default=12, help="buckets of a step (default: 12)")
    parser.add_argument("--steps", type=int, default=5, help="steps (default: 5)")
    parser.add_argument("--mbit", type=int, default=1000, help="the wire's speed, Mbit/s (default: 1000)")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    parser.add_argument("--timeline", type=Path, default=Path("out/two_nodes_overlap_timeline.json"))
    parser.add_argument("--picture", type=Path, help="a .png or .svg: draws the timeline's middle step")
    return parser


def _draw(timeline: Path, steps: int, picture: Path) -> None:
    chosen = f"{steps // 2}:{steps // 2 + 1}"
    if code := roundelay_timeline([str(timeline), "--steps", chosen, "--output", str(picture)]):
        raise launch.JobError("the picture could not be drawn", code)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    arguments = _parser().parse_args(argv)
    launch.require_rig("two nodes")
    mpirun = launch.find_launcher()
    sizes = {name: getattr(arguments, name) for name in ("size", "buckets", "steps")}
    arguments.timeline.parent.mkdir(parents=True, exist_ok=True)
    spec = {**sizes, "timeline": str(arguments.timeline.resolve())}
    with Rig(NODES, arguments.mbit) as rig:
        found = launch.run_ranks(mpirun, "benchmarks.workers.two_nodes_overlap", RANKS, spec, 600, rig)[0]
    console = show.console()
    what = f"{arguments.steps} steps of {arguments.buckets} buckets of {show.size_text(arguments.size)}"
    console.print(
        f"2 nodes of 2 ranks, {arguments.mbit} Mbit/s, {what}, fabric {found['fabric']}", highlight=False
    )
    times = ("inside", "between", "both", "overlapped")
    rows = [
        [str(one["rank"]), *(show.seconds_text(one[time] * 1e-6) for time in times), str(one["most"])]
        for one in found["levels"]
    ]
    console.print(show.table(_COLUMNS, rows))
    show.save(
        arguments.output / "two_nodes_overlap.json",
        {"machine": launch.machine(mpirun), "mbit": arguments.mbit, **sizes, **found},
    )
    if arguments.picture:
        _draw(arguments.timeline, arguments.steps, arguments.picture)


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
