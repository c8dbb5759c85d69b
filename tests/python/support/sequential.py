"""An algorithm's steps in one process, one shard after the other, which `algorithms.run` must equal."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from roundelay.algorithms.trees import rebuilt

Functions = tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any], Callable[[Any, Any], Any]]


def total(values: list[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """Combines values in the documented order: the largest power of two that leaves some, with the rest."""
    if len(values) == 1:
        return values[0]
    left = 1
    while 2 * left < len(values):
        left *= 2
    return combine(total(values[:left], combine), total(values[left:], combine))


def last_state(state: Any, functions: Functions, shards: list[Any], steps: int) -> Any:
    """Returns the state after `steps` steps of (evaluate, combine, update)."""
    evaluate, combine, update = functions
    for _ in range(steps):
        partials = [rebuilt(evaluate(state, shard), _contiguous) for shard in shards]
        state = update(state, total(partials, combine))
    return state


def _contiguous(_: str, leaf: Any) -> Any:
    return leaf.detach().contiguous() if isinstance(leaf, torch.Tensor) else leaf


def divided(data: Any, count: int) -> list[Any]:
    """Returns `count` slices of the data, as even as they can be."""
    ends = [number * len(data) // count for number in range(count + 1)]
    return [data[begin:end] for begin, end in itertools.pairwise(ends)]
