"""Small parameters with exact gradients, for the tests of DistributedOptimizer."""

from __future__ import annotations

from typing import Any

import torch

import roundelay.torch as hvd


def make_parameters(number: int, size: int = 3) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(size)) for _ in range(number)]


def wrapped_sgd(parameters: list[torch.nn.Parameter], **arguments: Any) -> torch.optim.SGD:
    return hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), op=hvd.Sum, **arguments)


def add_gradients(*factors: tuple[torch.nn.Parameter, float]) -> None:
    """Adds `factor` to each parameter's gradient."""
    torch.stack([(parameter * factor).sum() for parameter, factor in factors]).sum().backward()


def gradient_of(parameter: torch.nn.Parameter) -> list[float]:
    assert parameter.grad is not None
    values: list[float] = parameter.grad.tolist()
    return values


def sum_of_ranks() -> float:
    return float(sum(range(1, hvd.size() + 1)))
