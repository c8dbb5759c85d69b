"""Small parameters with exact gradients, for the tests of DistributedOptimizer."""

from __future__ import annotations

import os
from typing import Any

import torch

import roundelay.torch as hvd
from roundelay.torch._internal.optimizer.distributed import wrapper_of

POOLED = "RANKS_POOLED"
WIRE = "RANKS_WIRE"
ALONE = {"ROUNDELAY_GRADIENT_POOL": "0"}  # each gradient is reduced by itself


def make_parameters(number: int, size: int = 3) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(size)) for _ in range(number)]


def wrapped_sgd(parameters: list[torch.nn.Parameter], **arguments: Any) -> torch.optim.SGD:
    """Returns a DistributedOptimizer.

    With the variable POOLED its gradients are already in a pool. With WIRE they travel in this half type.
    """
    if os.environ.get(WIRE):
        arguments.setdefault("compression", getattr(hvd.Compression, os.environ[WIRE]))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), op=hvd.Sum, **arguments)
    if os.environ.get(POOLED) and not {"groups", "num_groups"} & arguments.keys():
        use_pool(optimizer, arguments.get("backward_passes_per_step", 1))
    return optimizer


def use_pool(optimizer: torch.optim.Optimizer, passes: int = 1) -> None:
    """Takes steps with gradients of zero until the gradients are in buckets."""
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    for _ in range(3):
        optimizer.zero_grad()
        for _ in range(passes):
            add_gradients(*((parameter, 0.0) for parameter in parameters))
        optimizer.step()
    optimizer.zero_grad()
    wrapper = wrapper_of(optimizer)
    assert wrapper is not None
    if wrapper.process_set.included() and wrapper.process_set.size() > 1:
        assert wrapper.buckets() > 0


def add_gradients(*factors: tuple[torch.nn.Parameter, float]) -> None:
    """Adds `factor` to each parameter's gradient."""
    torch.stack([(parameter * factor).sum() for parameter, factor in factors]).sum().backward()


def gradient_of(parameter: torch.nn.Parameter) -> list[float]:
    assert parameter.grad is not None
    values: list[float] = parameter.grad.tolist()
    return values


def sum_of_ranks() -> float:
    return float(sum(range(1, hvd.size() + 1)))
