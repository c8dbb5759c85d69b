"""Racks with narrow uplinks: the results of benchmarks.levels, if this machine can make racks."""

from __future__ import annotations

from typing import Any

from benchmarks import show
from benchmarks.levels import FLAT_RING, RING, THREE, TWO
from benchmarks.table.nodes import command
from benchmarks.table.result import Estimate, Result
from benchmarks.table.run import Run
from benchmarks.table.samples import Samples, compare
from benchmarks.workers.ways import STREAM

_WORK = "2 racks of 2 nodes of 2 ranks, uplinks 250 Mbit/s"
_STREAMS = "plain TCP streams"
# The goals' results.
TIME, BYTES = (f"25 MiB fp32, {_WORK}, {what}" for what in ("time", "bytes over an uplink"))
_PEERS = {TWO: TWO, RING: RING, FLAT_RING: FLAT_RING}


def measure(run: Run, quick: bool) -> dict[str, Any]:
    """Run the benchmark as a command."""
    return command("benchmarks.levels", quick=quick)


def results(found: dict[str, Any]) -> list[Result]:
    """Compare three levels with the other ways and with the streams, in time, and the uplink's bytes."""
    if "missing" in found:
        return [Result(_WORK, why=found["missing"])]
    made = []
    for cell in found["cells"]:
        work = f"{show.size_text(cell['bytes'])} fp32, {_WORK}"
        samples = Samples(cell["seconds"], cell["others"])
        time = compare(f"{work}, time", samples, _PEERS, own=THREE, floor=(STREAM, _STREAMS))
        made.append(time)
    last = found["cells"][-1]  # small messages are no more than control messages
    sent, floor = (Estimate(float(last["sent"][way])) for way in (THREE, STREAM))
    work = f"{show.size_text(last['bytes'])} fp32, {_WORK}, bytes over an uplink"
    over = Estimate(sent.value / floor.value)
    return [*made, Result(work, "B", sent, (), floor, _STREAMS, over)]
