"""Control messages of a step of ResNet-50's gradients on two nodes: negotiated, and under a schedule lock.

The nodes are network namespaces of this machine (tests/rig), which need root.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import launch, show
from tests.rig import Rig

_NODES, _EACH = 2, 2
_MBIT = 10_000
_LIMIT_S = 300
_LOCKS = {"negotiated": False, "locked": True}
_COLUMNS = [
    "way",
    "messages of all ranks",
    "bytes of all ranks",
    "messages at the busiest rank",
    "by schedule",
]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.control_bytes", description=__doc__)
    parser.add_argument("--steps", type=int, default=20, help="that count (default: 20)")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    return parser


def _ranks(steps: int, locks: bool) -> list[dict[str, Any]]:
    with Rig(_NODES, _MBIT) as rig:
        return launch.run_ranks(
            launch.find_launcher(),
            "benchmarks.workers.control_bytes",
            _NODES * _EACH,
            {"steps": steps, "locks": locks},
            _LIMIT_S,
            rig,
            {"ROUNDELAY_FABRIC": "shm+tcp", "ROUNDELAY_SCHEDULE_LOCK": str(int(locks))},
        )


def together(ranks: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Add up what the ranks have sent in a step. `by_schedule`: operations that needed no negotiation."""
    sent = [rank["messages_sent"] for rank in ranks]
    return {
        "messages": sum(sent),
        "bytes": sum(rank["message_bytes"] for rank in ranks),
        "busiest": max(sent),
        "by_schedule": ranks[0]["locked_operations"],
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    given = _parser().parse_args(argv)
    launch.require_rig("two nodes")
    jobs = {way: _ranks(given.steps, locks) for way, locks in _LOCKS.items()}
    ways = {way: together(ranks) for way, ranks in jobs.items()}
    lines = [[way, *(f"{count:.1f}" for count in counts.values())] for way, counts in ways.items()]
    show.console().print(show.table(_COLUMNS, lines, texts=1))
    found = {"gradients": jobs["locked"][0]["gradients"], "ways": ways}
    show.save(given.output / "control_bytes.json", found)


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
