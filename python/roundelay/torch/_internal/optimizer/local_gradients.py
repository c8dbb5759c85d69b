"""Tells when a backward has brought gradients that no operation reduces."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch

from roundelay import _core


class LocalGradients:
    """Hooks on parameters whose gradients stay on this rank. ``arrived`` is called when a backward ends."""

    def __init__(self, arrived: Callable[[], None]) -> None:
        self._arrived = arrived
        self._hook = _core.LocalHook(_core.BackwardListener(self))
        self._hooks: dict[torch.Tensor, torch.utils.hooks.RemovableHandle] = {}

    def follow(self, parameters: Collection[torch.Tensor]) -> None:
        """Moves the hooks to these parameters. A frozen one gets its hook when it is trained."""
        for gone in self._hooks.keys() - parameters:
            self._hooks.pop(gone).remove()
        for parameter in parameters:
            if parameter.requires_grad and parameter not in self._hooks:
                self._hooks[parameter] = parameter.register_post_accumulate_grad_hook(self._hook)

    def close(self) -> None:
        """Takes all hooks off."""
        for hook in self._hooks.values():
            hook.remove()

    def backward_ended(self) -> None:
        """Ends a backward: the core calls it."""
        self._arrived()
