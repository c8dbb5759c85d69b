"""Tells when a backward has brought gradients that no operation reduces."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection

import torch

from roundelay.torch.optimizer.backward_end import backward_end
from roundelay.torch.untraced import untraced


class LocalGradients:
    """Hooks on parameters whose gradients stay on this rank. ``arrived`` is called when a backward ends."""

    order = (-1, 0)  # before those that wait for other ranks

    def __init__(self, arrived: Callable[[], None]) -> None:
        self._arrived = arrived
        self._hooks: dict[torch.Tensor, torch.utils.hooks.RemovableHandle] = {}

    def follow(self, parameters: Collection[torch.Tensor]) -> None:
        """Has hooks on these parameters from now on. A frozen one gets it when it is trained."""
        for gone in self._hooks.keys() - parameters:
            self._hooks.pop(gone).remove()
        listener = weakref.ref(self)

        @untraced
        def joins(_: torch.Tensor) -> None:
            local = listener()
            if local is not None:
                backward_end.add(local)
                backward_end.end_if_compiled()

        for parameter in parameters:
            if parameter.requires_grad and parameter not in self._hooks:
                self._hooks[parameter] = parameter.register_post_accumulate_grad_hook(joins)

    def close(self) -> None:
        """Takes all hooks off."""
        for hook in self._hooks.values():
            hook.remove()

    # -- a Listener (backward_end.py)

    def backward_ended(self) -> bool:
        """Asks for end_round(), which passes it on."""
        return True

    def begin_round(self, final: bool, alone: bool) -> None:
        """Does nothing: no rank waits for another."""

    def end_round(self) -> None:
        """Calls ``arrived``."""
        self._arrived()
