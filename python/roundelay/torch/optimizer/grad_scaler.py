"""Makes GradScaler skip a step on all ranks or on none.

GradScaler looks for infinities in ``.grad`` before it calls ``step()``. If only some ranks skipped the step,
the others would wait in it. So the ranks first reduce the gradients that are still local (a short last window
of accumulation). Where gradients stay local (Adasum), the strategy makes the ranks agree on the findings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch


class Scaled(Protocol):
    """A wrapped optimizer, as GradScaler needs it."""

    def synchronize(self) -> None:
        """Completes the gradients."""

    def note_unscaled(self) -> None:
        """Records that the gradients were unscaled."""

    def agree_on_overflow(self, found: dict[torch.device, torch.Tensor]) -> None:
        """Makes the findings of all ranks equal, in place."""


@functools.cache
def watch(find: Callable[[torch.optim.Optimizer], Scaled | None]) -> None:
    """Extends GradScaler, its subclasses too, for optimizers that ``find`` knows; once for each ``find``."""
    # Both unscale_() and the step of fused optimizers call this method.
    original: Any = torch.amp.GradScaler._unscale_grads_

    @functools.wraps(original)
    def unscale(
        scaler: torch.amp.GradScaler,
        optimizer: torch.optim.Optimizer,
        inv_scale: torch.Tensor,
        found_inf: torch.Tensor,
        allow_fp16: bool,
    ) -> dict[torch.device, torch.Tensor]:
        wrapped = find(optimizer)
        if wrapped is not None:
            wrapped.synchronize()
        found: dict[torch.device, torch.Tensor] = original(
            scaler, optimizer, inv_scale, found_inf, allow_fp16
        )
        if wrapped is not None:
            wrapped.note_unscaled()
            if not found:  # this rank has no gradients
                found[found_inf.device] = found_inf
            wrapped.agree_on_overflow(found)
        return found

    setattr(torch.amp.GradScaler, "_unscale_grads_", unscale)  # noqa: B010  mypy knows no wrapped methods
