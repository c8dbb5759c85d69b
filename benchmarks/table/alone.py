"""What a library costs that is alone in its processes: idle, and memory."""

from __future__ import annotations

from typing import Any

from benchmarks import show
from benchmarks.table.line import Goal, Line
from benchmarks.table.run import Run

_CPU_PERCENT = 0.1
_MEMORY_SHARE, _MEMORY_BYTES = 1.1, 64 << 20  # at most: so many times the gradients, and so much more
_LIBRARIES = {"none": "no communication", "roundelay": "Roundelay", "gloo": "DDP with Gloo", "mpi": "MPI"}


def measure(run: Run, quick: bool) -> dict[str, Any]:
    """A job of 2 ranks for each library."""
    libraries = ("roundelay",) if quick else _LIBRARIES
    seconds = 1 if quick else 10
    return {name: run("alone", 2, {"library": name, "seconds": seconds}) for name in libraries}


def _percent(ranks: list[dict[str, Any]]) -> float:
    return 100.0 * max(float(rank["idle"]["share"]) for rank in ranks)


def _memory(ranks: list[dict[str, Any]]) -> float:
    return max(float(rank["memory"]) for rank in ranks)


def lines(found: dict[str, list[dict[str, Any]]]) -> list[Line]:
    """The rank that has most of it counts."""
    own = found["roundelay"]
    peers = {name: ranks for name, ranks in found.items() if name != "roundelay"}
    idle = [f"{_LIBRARIES[n]} {show.quantity(_percent(r), '%')}" for n, r in peers.items() if n != "none"]
    memory = [f"{_LIBRARIES[n]} {show.size_text(int(_memory(r)))}" for n, r in peers.items()]
    percent, resident = _percent(own), _memory(own)
    messages = float(max(rank["idle"]["messages"] for rank in own))
    gradients = own[0]["gradients"]
    limit = Goal(_MEMORY_SHARE * gradients + _MEMORY_BYTES, at_least=False)
    texts = {unit: show.quantity(value, unit) for value, unit in ((percent, "%"), (resident, "B"))}
    cpu = Goal(_CPU_PERCENT, at_least=False)
    none = Goal(0, at_least=False)
    work = f"resident for {show.size_text(gradients)} of gradients, with them"
    return [
        Line("idle: CPU of a rank", texts["%"], theirs=", ".join(idle), value=percent, unit="%", goal=cpu),
        Line("idle: messages", show.quantity(messages, ""), value=messages, unit="", goal=none),
        Line(work, texts["B"], theirs=", ".join(memory), value=resident, unit="B", goal=limit),
    ]
