"""Finds the strategy of an optimizer that DistributedOptimizer has wrapped."""

from __future__ import annotations

import weakref

import torch

from roundelay.torch._internal.strategy.strategy import Strategy

# DistributedOptimizer writes this table.
attached: weakref.WeakKeyDictionary[torch.optim.Optimizer, Strategy] = weakref.WeakKeyDictionary()


def of(optimizer: torch.optim.Optimizer) -> Strategy:
    """Returns the strategy of a wrapped optimizer. ValueError if DistributedOptimizer has not wrapped it."""
    strategy = attached.get(optimizer)
    if strategy is None:
        raise ValueError(f"{type(optimizer).__name__} has no strategy: give it to DistributedOptimizer first")
    return strategy
