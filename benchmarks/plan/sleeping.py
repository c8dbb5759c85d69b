"""Training whose computing is a sleep, with real gradients."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from benchmarks.plan.tasks import Task


class _Layer(torch.autograd.Function):
    """Passes its input on; its backward sleeps, and gives the weight a gradient."""

    @staticmethod
    def forward(context: Any, inputs: torch.Tensor, weight: torch.Tensor, sleep: float) -> torch.Tensor:
        context.save_for_backward(weight)
        context.sleep = sleep
        return inputs.clone()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        (weight,) = context.saved_tensors
        time.sleep(context.sleep)
        return gradients[0], weight.detach().clone(), None


class Model(nn.Module):
    """A task's layers. `ready`: the times at which the gradients of the last backward were there."""

    def __init__(self, task: Task, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.task = task
        self.weights = nn.ParameterList(torch.randn(n, generator=generator) for n in task.elements)
        self.ready: list[float] = []  # moments of the last backward
        for weight in self.weights:
            weight.register_post_accumulate_grad_hook(lambda _: self.ready.append(time.perf_counter()))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Sleep for forward; backward goes through the layers in the task's order."""
        time.sleep(self.task.forward)
        for weight, sleep in zip(list(self.weights)[::-1], self.task.backward[::-1], strict=True):
            inputs = _Layer.apply(inputs, weight, sleep)
        return inputs.sum()


def step(model: Model, optimizer: torch.optim.Optimizer) -> list[float]:
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
