"""GradScaler decides alike on all ranks whether a step is skipped.

It looks for infinities in ``.grad`` before ``step()`` is called, and a rank that skips the step would leave
the others waiting in it. So what is still local by then (a short last window of accumulation) is completed
first, and with op=Adasum, where gradients stay local, the findings are compared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch


class Scaled(Protocol):
    """What a wrapped optimizer does when GradScaler looks at its gradients."""

    def synchronize(self) -> None:
        """Completes the gradients."""

    def agree_on_overflow(self, found: dict[torch.device, torch.Tensor]) -> None:
        """Makes the findings of all ranks equal, in place."""


@functools.cache
def watch(find: Callable[[torch.optim.Optimizer], Scaled | None]) -> None:
    """Extends GradScaler, its subclasses too, for optimizers that ``find`` knows; once for each ``find``."""
    # Both unscale_() and the step of fused optimizers come through here.
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
            if not found:  # this rank has no gradients
                found[found_inf.device] = found_inf
            wrapped.agree_on_overflow(found)
        return found

    setattr(torch.amp.GradScaler, "_unscale_grads_", unscale)  # noqa: B010  mypy knows no wrapped methods
