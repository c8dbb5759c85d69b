"""Steps that talk less often, on 2 nodes of 2 ranks at 100 Mbit/s: results of benchmarks.averaging.steps."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.contenders import AVERAGING, DENSE, NODE
from benchmarks.table.nodes import command
from benchmarks.table.result import Result
from benchmarks.table.row import Row
from benchmarks.table.run import Run
from benchmarks.table.samples import Samples, compare

_MODULE = "benchmarks.averaging.steps"
_NODES = 2
DASO = ("daso-4-1", "daso-8-8")
LOCAL_SGD = ("local-8",)
_SYNCHRONOUS = "gradients in every step"


def work(contender: str) -> str:
    """Name the step of a contender."""
    return f"step with {AVERAGING[contender].name}, {_NODES} nodes of 2 ranks, 100 Mbit/s"


def _measure(run: Run, quick: bool, contenders: tuple[str, ...]) -> dict[str, Any]:
    """Run the benchmark as a command."""
    chosen = (DENSE, NODE, *contenders)
    return command(_MODULE, "--nodes", str(_NODES), "--contenders", *chosen, quick=quick)


def results(found: dict[str, Any], contenders: tuple[str, ...]) -> list[Result]:
    """Compare steps with those of dense training, and with those without communication between nodes."""
    if "missing" in found:
        return [Result(work(name), why=found["missing"]) for name in contenders]
    rig = next(rig for rig in found["rigs"] if rig["nodes"] == _NODES)
    samples = Samples(rig["seconds"], rig["others"])
    floor = NODE, AVERAGING[NODE].name
    return [compare(work(name), samples, {DENSE: _SYNCHRONOUS}, name, floor) for name in contenders]


def row(contenders: tuple[str, ...]) -> Row:
    """Make the row of some contenders."""
    return Row(partial(_measure, contenders=contenders), partial(results, contenders=contenders))
