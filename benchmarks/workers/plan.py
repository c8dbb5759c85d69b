"""One rank of `python -m benchmarks.plan`: steps whose computing is a sleep, with real gradients."""

from __future__ import annotations

import os
import time
from typing import Any

import torch

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.plan.sleeping import Model, step
from benchmarks.plan.tasks import STEPS, TASKS, THETA, Task


def _alone(model: Model, optimizer: torch.optim.Optimizer, repetitions: int) -> dict[str, Any]:
    """Record steps without communication: what the planner takes from a timeline."""
    steps: list[dict[str, Any]] = []
    for _ in range(repetitions):
        begin, middle, over, end = step(model, optimizer)
        ready = [moment - middle for moment in model.ready]
        times = {"forward": middle - begin, "backward": over - middle, "update": end - over}
        steps.append({**times, "ready": ready})
    return sorted(steps, key=lambda step: step["forward"] + step["backward"])[len(steps) // 2]


def _measure(task: Task, strategy: str, repetitions: int, ranks: measure.Ranks) -> dict[str, Any]:
    model = Model(task, ranks.rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
    hvd.DistributedOptimizer(optimizer, model.named_parameters(), strategy=strategy)
    for _ in range(STEPS):  # then the pool has its buckets
        step(model, optimizer)
    seconds = []
    ranks.rest()
    sent = measure.sent()
    for _ in range(repetitions):
        ranks.rest()
        begin = time.perf_counter()
        for _ in range(STEPS):
            step(model, optimizer)
        seconds.append((time.perf_counter() - begin) / STEPS)
    ranks.rest()
    return {"seconds": seconds, "sent": (measure.sent() - sent) / (STEPS * repetitions)}


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure each task with each strategy."""
    os.environ["ROUNDELAY_THETA"] = str(THETA)
    ranks = measure.Ranks(spec)
    hvd.init()
    cells = []
    alone: dict[str, dict[str, Any]] = {}
    for name, strategy in spec["work"]:
        if name not in alone:
            model = Model(TASKS[name], ranks.rank)
            plain = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
            ranks.rest()
            alone[name] = _alone(model, plain, STEPS * spec["repetitions"])
        found = _measure(TASKS[name], strategy, spec["repetitions"], ranks)
        cells.append({**found, "alone": alone[name]})
    hvd.shutdown()
    ranks.leave()
    return {"cells": cells}


if __name__ == "__main__":
    measure.worker(main)
