"""How the elements of a parameter's gradient lie in its pool."""

from __future__ import annotations

import torch


def pool_strides(parameter: torch.Tensor) -> tuple[int, ...]:
    """Returns the strides of its entry in the pool: its own, if its elements fill a piece of memory."""
    filled = 1
    for stride, size in sorted(zip(parameter.stride(), parameter.shape, strict=True)):
        if size != 1 and stride != filled:
            return torch.empty(parameter.shape, device="meta").stride()
        filled *= size
    return parameter.stride()
