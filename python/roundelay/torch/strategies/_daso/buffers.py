"""The model's buffers, which DASO averages at the ends of epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from roundelay.torch.process_sets import ProcessSet
from roundelay.torch.strategies._averaging.averages import Cycle, average

Buffers = Callable[[], Iterable[torch.Tensor]]


def checked_buffers(buffers: Any) -> Buffers | None:
    """Returns the function. ValueError: it is none."""
    if buffers is not None and not callable(buffers):
        raise ValueError(f"buffers is {buffers!r:.60}, but must be a function, such as model.buffers")
    checked: Buffers | None = buffers
    return checked


@torch.no_grad()
def average_buffers(buffers: Buffers | None, cycle: Cycle, name: str, process_set: ProcessSet) -> None:
    """Gives all ranks the means of the buffers that are no whole numbers. All ranks call it."""
    if buffers is None:
        return
    wanted = [one for one in buffers() if one.is_floating_point() or one.is_complex()]
    means = average(wanted, cycle, name, process_set)
    torch._foreach_copy_(wanted, means) if wanted else None
