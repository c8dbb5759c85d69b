"""Steps with top-k over a wire of 100 Mbit/s: the results of benchmarks.gradientflow for some contenders."""

from __future__ import annotations

from typing import Any

from benchmarks.contenders import ALONE, GRADIENTFLOW
from benchmarks.gradientflow.result import from_json
from benchmarks.table import nodes
from benchmarks.table.result import Estimate, Peer, Result
from benchmarks.table.run import Run

_MBIT = 100
_WORK = f"step, 2 nodes of 2 ranks, {_MBIT} Mbit/s"
TOP_K, CSC = f"top-k 1 %, {_WORK}", f"CSC 10 %, {_WORK}"
_OWN = {TOP_K: "topk-1", CSC: "csc-10"}
_PEERS = ("ddp", "powersgd-1", "powersgd-4")


def measure(run: Run, quick: bool) -> dict[str, Any]:
    """Run the benchmark as a command."""
    chosen = [*_OWN.values(), *_PEERS]
    module = "benchmarks.gradientflow"
    return nodes.command(module, "--mbit", str(_MBIT), "--contenders", *chosen, quick=quick)


def results(found: dict[str, Any]) -> list[Result]:
    """Compare each with DDP and its hooks, and with a step without communication."""
    if "missing" in found:
        return [Result(_WORK, why=found["missing"])]
    (wire,) = map(from_json, found["wires"])
    steps = {row.name: row.step for row in wire.rows}
    return [_result(work, name, steps, (wire.counted, wire.repetitions)) for work, name in _OWN.items()]


def _result(work: str, name: str, steps: dict[str, Estimate], kept: tuple[int, int]) -> Result:
    own, floor = steps[GRADIENTFLOW[name].name], steps[GRADIENTFLOW[ALONE].name]
    names = [GRADIENTFLOW[peer].name for peer in _PEERS]
    peers = [Peer(peer, steps[peer], _ratio(steps[peer], own)) for peer in names]
    over = _ratio(own, floor)
    return Result(work, "s", own, tuple(peers), floor, "no communication", over, kept=kept[0], of=kept[1])


def _ratio(one: Estimate, other: Estimate) -> Estimate:
    return Estimate(one.value / other.value)
