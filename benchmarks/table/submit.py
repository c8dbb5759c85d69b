"""The training thread's time for submitting a gradient."""

from __future__ import annotations

from typing import Any

from benchmarks.table.result import Result
from benchmarks.table.run import Run
from benchmarks.table.samples import Samples, compare

CALL, HOOK = "submit: allreduce_async_, a call", "submit: the optimizer's hook, a gradient"
_BASES = {"hooked": "plain", "empty hooks": "plain"}


def measure(run: Run, quick: bool) -> dict[str, Any]:
    """Run one job of 2 ranks."""
    return run("submit", 2, {"gradients": 161, "repetitions": 3 if quick else 100})[0]


def results(found: dict[str, Any]) -> list[Result]:
    """Make the results: a call, and the time that the hook adds to a backward."""
    samples = Samples(found["seconds"], found["others"], _BASES)
    return [
        compare(CALL, samples, {}, own="call", floor=("queue", "putting it into a queue")),
        compare(HOOK, samples, {}, own="hooked", floor=("empty hooks", "a hook that does nothing")),
    ]
