"""Control messages of a step of 161 gradients on two nodes: negotiated, and under a schedule lock.

The gradients have the names of a model, and few elements: control messages do not depend on the elements.
The nodes are network namespaces of this machine (tests/rig), which need root.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks import launch, show
from tests.rig import Rig

_NODES, _EACH = 2, 2
_STEPS = 20
GRADIENTS = 161
WAYS = ("negotiated", "locked")
_COLUMNS = ["way", "messages of all ranks", "bytes of all ranks", "messages at the busiest rank"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.control_bytes", description=__doc__)
    parser.add_argument("--steps", type=int, default=_STEPS, help=f"that count (default: {_STEPS})")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the JSON")
    return parser


def together(ranks: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Add up what each rank has sent in a step, by way."""
    made: dict[str, dict[str, float]] = {}
    for way in WAYS:
        sent = [rank[way]["messages_sent"] for rank in ranks]
        payload = sum(rank[way]["message_bytes"] for rank in ranks)
        made[way] = {"messages": sum(sent), "bytes": payload, "busiest": max(sent)}
    return made


def main(argv: list[str] | None = None) -> None:
    """Run the command."""
    given = _parser().parse_args(argv)
    launch.require_rig("two nodes")
    spec = {"gradients": GRADIENTS, "steps": given.steps}
    with Rig(_NODES) as rig:
        ranks = launch.run_ranks(
            launch.find_launcher(),
            "benchmarks.workers.control_bytes",
            _NODES * _EACH,
            spec,
            300,
            rig,
            {"ROUNDELAY_FABRIC": "shm+tcp"},
        )
    found = together(ranks)
    lines = [[way, *(f"{found[way][key]:.1f}" for key in ("messages", "bytes", "busiest"))] for way in WAYS]
    show.console().print(show.table(_COLUMNS, lines, texts=1))
    show.save(given.output / "control_bytes.json", {"gradients": GRADIENTS, "ways": found})


if __name__ == "__main__":
    with launch.ending_in_one_line():
        main()
