"""One rank of `python -m benchmarks.plan`: steps whose computing is a sleep, with real gradients."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch import nn

import roundelay.torch as hvd
from benchmarks import measure
from benchmarks.plan.tasks import TASKS, THETA, Task, cycle

_WARM = 4  # steps until the pool has its buckets


class _Layer(torch.autograd.Function):
    """Passes its input on; its backward sleeps, and gives the weight a gradient."""

    @staticmethod
    def forward(context: Any, inputs: torch.Tensor, weight: torch.Tensor, sleep: float) -> torch.Tensor:
        context.save_for_backward(weight)
        context.sleep = sleep
        return inputs.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        (weight,) = context.saved_tensors
        time.sleep(context.sleep)
        return gradient, weight.detach().clone(), None


class _Model(nn.Module):
    def __init__(self, task: Task, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.task = task
        self.weights = nn.ParameterList(torch.randn(n, generator=generator) for n in task.elements)
        self.ready: list[float] = []  # moments of the last backward
        for weight in self.weights:
            weight.register_post_accumulate_grad_hook(lambda _: self.ready.append(time.perf_counter()))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        time.sleep(self.task.forward)
        for weight, sleep in zip(reversed(self.weights), reversed(self.task.backward), strict=True):
            inputs = _Layer.apply(inputs, weight, sleep)
        return inputs.sum()


def _step(model: _Model, optimizer: torch.optim.Optimizer) -> list[float]:
    """Train a step; return the moments at which forward, backward and the update ended."""
    optimizer.zero_grad()
    model.ready.clear()
    moments = [time.perf_counter()]
    loss = model(torch.ones(1, requires_grad=True))
    moments.append(time.perf_counter())
    loss.backward()
    moments.append(time.perf_counter())
    optimizer.step()
    moments.append(time.perf_counter())
    return moments


def _alone(model: _Model, optimizer: torch.optim.Optimizer, repetitions: int) -> dict[str, Any]:
    """Record steps without communication: what the planner takes from a timeline."""
    steps: list[dict[str, Any]] = []
    for _ in range(repetitions):
        begin, middle, over, end = _step(model, optimizer)
        ready = [moment - middle for moment in model.ready]
        times = {"forward": middle - begin, "backward": over - middle, "update": end - over}
        steps.append({**times, "ready": ready})
    return sorted(steps, key=lambda step: step["forward"] + step["backward"])[len(steps) // 2]


def _measure(task: Task, strategy: str, spec: dict[str, Any], ranks: measure.Ranks) -> list[float]:
    model = _Model(task, ranks.rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
    hvd.DistributedOptimizer(optimizer, model.named_parameters(), strategy=strategy)
    steps = cycle(strategy)
    for _ in range(max(_WARM, steps)):
        _step(model, optimizer)
    seconds = []
    for _ in range(spec["repetitions"]):
        ranks.rest()
        begin = time.perf_counter()
        for _ in range(steps):
            _step(model, optimizer)
        seconds.append((time.perf_counter() - begin) / steps)
    return seconds


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure each task with each strategy."""
    os.environ["ROUNDELAY_THETA"] = str(THETA)
    ranks = measure.Ranks(spec)
    hvd.init()
    cells = []
    for name in spec["tasks"]:
        model = _Model(TASKS[name], ranks.rank)
        plain = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
        alone = _alone(model, plain, spec["repetitions"])
        for strategy in spec["strategies"]:
            seconds = _measure(TASKS[name], strategy, spec, ranks)
            cells.append({"task": name, "strategy": strategy, "seconds": seconds, "alone": alone})
    hvd.shutdown()
    ranks.leave()
    return {"cells": cells}


if __name__ == "__main__":
    measure.worker(main)
