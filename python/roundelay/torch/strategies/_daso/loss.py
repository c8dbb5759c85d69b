"""The loss of an epoch, which decides the next epoch's skips."""

from __future__ import annotations

from typing import Any

import torch

from roundelay import _core
from roundelay.torch._internal.operations import Average
from roundelay.torch._internal.operations.common import Call
from roundelay.torch.process_sets import ProcessSet, set_id


def checked_loss(loss: Any) -> float:
    """Returns a loss as a number; NaN counts as no better. ValueError: it is no number."""
    if isinstance(loss, torch.Tensor) and loss.numel() == 1:
        return float(loss.detach())
    if not isinstance(loss, int | float) or isinstance(loss, bool):
        raise ValueError(f"epoch_ended() needs the epoch's loss as a number, not {loss!r:.60}")
    return float(loss)


def mean_loss(loss: Any, name: str, process_set: ProcessSet) -> float:
    """Returns the mean over the ranks, which all call it. ValueError, on all: one of theirs is no number."""
    with Call("allreduce", name, process_set) as call:
        try:
            mean = torch.tensor([checked_loss(loss)], dtype=torch.float64, device="cpu")
        except ValueError as error:
            raise call.wrong(str(error)) from None
    _core.allreduce(mean, mean, name, Average, 1.0, 1.0, set_id(process_set))
    return float(mean)
