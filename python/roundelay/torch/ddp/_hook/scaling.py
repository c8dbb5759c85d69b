"""Tells hooks of a new loss scale: what they keep back has the scale of its step."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Protocol

import torch

from roundelay.torch._internal.optimizer.grad_scaler import watch


class Keeping(Protocol):
    """A hook's state, as a GradScaler needs it."""

    def has_any(self, parameters: set[torch.Tensor]) -> bool:
        """Returns whether one of these is in its buckets."""

    def rescale(self, factor: float) -> None:
        """Multiplies what is kept back."""


class _Scaled:
    """A hook in the place of a wrapped optimizer: DDP completes gradients, equal on all ranks."""

    keeps_back = True

    def __init__(self, state: Keeping) -> None:
        self.state = weakref.ref(state)

    def synchronize(self) -> None:
        """Does nothing."""

    def note_unscaled(self) -> None:
        """Does nothing."""

    def agree_on_overflow(self, found: dict[torch.device, torch.Tensor]) -> None:
        """Does nothing."""

    def rescale(self, factor: float) -> None:
        """Multiplies what is kept back."""
        state = self.state()
        if state is not None:
            state.rescale(factor)


_states: weakref.WeakKeyDictionary[Keeping, _Scaled] = weakref.WeakKeyDictionary()


def follow_scale(state: Keeping) -> None:
    """Makes GradScaler tell this state of a new scale, if it has stepped an optimizer of its parameters."""
    watch(_find)
    _states[state] = _Scaled(state)


def _find(optimizer: torch.optim.Optimizer) -> Sequence[_Scaled]:
    if not _states:
        return ()
    parameters = {one for group in optimizer.param_groups for one in group["params"]}
    return [scaled for state, scaled in _states.items() if state.has_any(parameters)]
