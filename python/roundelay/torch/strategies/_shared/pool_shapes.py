"""The form that a parameter's gradient has in its pool."""

from __future__ import annotations

import torch

from roundelay.torch.strategies.protocol import Shape


def shape_in_pool(parameter: torch.Tensor | None) -> Shape:
    """Returns the form of this parameter's gradient; one without dimensions if the parameter is gone."""
    if parameter is None:
        return Shape((), ())
    return Shape(tuple(parameter.shape), pool_strides(parameter))


def pool_strides(parameter: torch.Tensor) -> tuple[int, ...]:
    """Returns the strides of its entry in the pool: its own, if its elements fill a piece of memory."""
    filled = 1
    for stride, size in sorted(zip(parameter.stride(), parameter.shape, strict=True)):
        if size != 1 and stride != filled:
            return torch.empty(parameter.shape, device="meta").stride()
        filled *= size
    return parameter.stride()
