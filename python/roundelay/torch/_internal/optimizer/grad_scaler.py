"""Makes GradScaler skip a step on all ranks or on none, and tells strategies of a new scale.

GradScaler looks for infinities in ``.grad`` before it calls ``step()``. If only some ranks skipped the step,
the others would wait in it. So the ranks first reduce the gradients that are still local (a short last window
of accumulation). If gradients stay local (Adasum), the strategy makes the ranks agree on the findings.

Gradients that a strategy keeps back have the scale of the loss in their step. ``update()`` changes the scale
for the next step, and the strategy multiplies what it keeps by the same factor: a power of two, unless the
scaler was given other factors, so this is exact.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch


class Scaled(Protocol):
    """A wrapped optimizer, as GradScaler needs it."""

    @property
    def keeps_back(self) -> bool:
        """True if its strategy may keep gradients back."""

    def synchronize(self) -> None:
        """Completes the gradients."""

    def note_unscaled(self) -> None:
        """Records that the gradients were unscaled."""

    def agree_on_overflow(self, found: dict[torch.device, torch.Tensor]) -> None:
        """Makes the findings of all ranks equal, in place."""

    def rescale(self, factor: float) -> None:
        """Multiplies what is kept back."""


Find = Callable[[torch.optim.Optimizer], Sequence[Scaled]]

_unscaled: weakref.WeakKeyDictionary[torch.amp.GradScaler, weakref.WeakSet[torch.optim.Optimizer]]
_unscaled = weakref.WeakKeyDictionary()  # the optimizers of each scaler


@functools.cache
def watch(find: Find) -> None:
    """Extends GradScaler, its subclasses too, for optimizers that ``find`` knows; once for each ``find``."""
    # mypy knows no wrapped methods. Both unscale_() and the step of fused optimizers call _unscale_grads_.
    kind: Any = torch.amp.GradScaler
    kind._unscale_grads_ = _agreeing(kind._unscale_grads_, find)
    kind.update = _rescaling(kind.update, find)


def _agreeing(original: Any, find: Find) -> Any:
    @functools.wraps(original)
    def unscale(
        scaler: torch.amp.GradScaler,
        optimizer: torch.optim.Optimizer,
        inv_scale: torch.Tensor,
        found_inf: torch.Tensor,
        allow_fp16: bool,
    ) -> dict[torch.device, torch.Tensor]:
        every = find(optimizer)
        if every:
            _unscaled.setdefault(scaler, weakref.WeakSet()).add(optimizer)
        for wrapped in every:
            wrapped.synchronize()
        found: dict[torch.device, torch.Tensor] = original(
            scaler, optimizer, inv_scale, found_inf, allow_fp16
        )
        for wrapped in every:
            wrapped.note_unscaled()
            if not found:  # this rank has no gradients
                found[found_inf.device] = found_inf
            wrapped.agree_on_overflow(found)
        return found

    return unscale


def _rescaling(original: Any, find: Find) -> Any:
    @functools.wraps(original)
    def update(scaler: torch.amp.GradScaler, *args: Any, **kwargs: Any) -> None:
        every = {id(one): one for optimizer in _unscaled.get(scaler, ()) for one in find(optimizer)}
        keeping = [one for one in every.values() if one.keeps_back]
        before = scaler.get_scale() if keeping else 1.0  # on a GPU the host waits for it
        original(scaler, *args, **kwargs)
        after = scaler.get_scale() if keeping else 1.0
        if after != before:
            for wrapped in keeping:
                wrapped.rescale(after / before)
                _tell_of_others(scaler, wrapped, find)

    return update


def _tell_of_others(scaler: torch.amp.GradScaler, wrapped: Scaled, find: Find) -> None:
    """Warns if another scaler has other optimizers of the same gradients."""
    others = (one for scales, every in _unscaled.items() if scales is not scaler for one in every)
    if any(wrapped in find(optimizer) for optimizer in others):
        text = (
            "two GradScalers unscale gradients of one hook, and what the hook keeps back has one scale: take "
            "one GradScaler for all optimizers of a DDP module, or a strategy that keeps nothing back"
        )
        warnings.warn(text, RuntimeWarning, stacklevel=3)
