"""The training thread's time for submitting a gradient."""

from __future__ import annotations

from typing import Any

from benchmarks.table.result import Result
from benchmarks.table.run import Run
from benchmarks.table.samples import Samples, compare

CALL, HOOK = "submit: allreduce_async_, a call", "submit: the optimizer's hook, a gradient"
HALF_HOOK = f"{HOOK} that travels in bf16"
OWN_FP32 = "the hook in fp32"
_BASES = {"hooked": "plain", "hooked bf16": "plain", "empty hooks": "plain"}


def measure(run: Run, quick: bool) -> dict[str, Any]:
    """Run one job of 2 ranks."""
    return run("submit", 2, {"gradients": 161, "repetitions": 3 if quick else 100})[0]


def results(found: dict[str, Any]) -> list[Result]:
    """Make the results: a call, and the time that the hook adds to a backward, with fp32 and bf16."""
    samples = Samples(found["seconds"], found["others"], _BASES)
    nothing = ("empty hooks", "a hook that does nothing")
    return [
        compare(CALL, samples, {}, own="call", floor=("queue", "putting it into a queue")),
        compare(HOOK, samples, {}, own="hooked", floor=nothing),
        compare(HALF_HOOK, samples, {"hooked": OWN_FP32}, own="hooked bf16", floor=nothing),
    ]
