"""The cost of a library that is alone in its processes: CPU time when idle, and memory."""

from __future__ import annotations

from typing import Any

from benchmarks.table.result import Estimate, Peer, Result
from benchmarks.table.run import Run

_PEERS = {"gloo": "DDP with Gloo", "mpi": "MPI"}
_FLOOR = "no communication"
IDLE, MESSAGES = "idle: CPU of a rank", "idle: messages"
MEMORY = "resident for ResNet-50's gradients, with them"


def measure(run: Run, quick: bool) -> dict[str, Any]:
    """Run a job of 2 ranks for each library."""
    libraries = ("none", "roundelay") if quick else ("none", "roundelay", *_PEERS)
    seconds = 1 if quick else 10
    return {name: run("alone", 2, {"library": name, "seconds": seconds}) for name in libraries}


def _worst(work: str, unit: str, costs: dict[str, float]) -> Result:
    """Make a result from one number per library: its ratios have no intervals."""
    own, floor = costs["roundelay"], costs["none"]
    peers = [
        Peer(text, Estimate(costs[name]), Estimate(costs[name] / own) if own else None)
        for name, text in _PEERS.items()
        if name in costs
    ]
    over = Estimate(own / floor) if floor else None
    return Result(work, unit, Estimate(own), tuple(peers), Estimate(floor), _FLOOR, over)


def results(found: dict[str, list[dict[str, Any]]]) -> list[Result]:
    """Make the results. The rank with the highest number counts."""
    idle = {name: 100.0 * max(rank["idle"]["share"] for rank in ranks) for name, ranks in found.items()}
    memory = {name: float(max(rank["memory"] for rank in ranks)) for name, ranks in found.items()}
    messages = float(max(rank["idle"]["messages"] for rank in found["roundelay"]))
    return [
        _worst(IDLE, "%", idle),
        Result(MESSAGES, "", Estimate(messages)),
        _worst(MEMORY, "B", memory),
    ]
