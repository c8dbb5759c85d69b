"""Two nodes: blocking sums of a few bytes, and the control messages of a step of an optimizer."""

from __future__ import annotations

from typing import Any

from benchmarks import show
from benchmarks.table import nodes
from benchmarks.table.result import Estimate, Result
from benchmarks.table.run import Run
from benchmarks.table.samples import Samples, compare

_SUMS, _CONTROL = "benchmarks.small_between_nodes", "benchmarks.control_bytes"
_PLACE = "between 2 nodes"


def measure(run: Run, quick: bool) -> dict[str, Any]:
    """Run the benchmark of small sums as a command."""
    return nodes.command(_SUMS, quick=quick)


def results(found: dict[str, Any]) -> list[Result]:
    """Compare the time with a ping-pong of as many bytes."""
    if "missing" in found:
        return [Result(f"small sums, {_PLACE}", why=found["missing"])]
    made = []
    for cell in found["cells"]:
        ranks = "1 rank each" if cell["each"] == 1 else f"{cell['each']} ranks each"
        samples = Samples(cell["seconds"], cell["others"])
        for way in ("locked", "negotiated"):
            work = f"{show.size_text(cell['bytes'])} blocking, {_PLACE}, {ranks}, {way}"
            made.append(compare(work, samples, {}, own=way, floor=("ping-pong", "a ping-pong")))
    return made


def measure_control(run: Run, quick: bool) -> dict[str, Any]:
    """Run the benchmark of control messages as a command."""
    return nodes.command(_CONTROL, quick=quick)


def control_results(found: dict[str, Any]) -> list[Result]:
    """Show the bytes of all ranks."""
    if "missing" in found:
        return [Result(f"control messages, {_PLACE}", why=found["missing"])]
    made = []
    for way, counts in found["ways"].items():
        work = f"control messages of {found['gradients']} gradients, {_PLACE} of 2 ranks, {way}"
        note = f"{counts['messages']:.0f} messages, {counts['busiest']:.0f} of them from one rank"
        made.append(Result(work, "B", Estimate(counts["bytes"]), note=note))
    return made
