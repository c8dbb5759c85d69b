"""Notices a job in which an optimizer takes steps and nothing reduces gradients: nobody has wrapped it."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


class Unreduced:
    """Watches the optimizers of one rank from ``init`` to ``shutdown``, until one is wrapped.

    A program may reduce gradients by itself. So any operation that brings floating point numbers of several
    ranks together counts as such a reduction; a broadcast does not.
    """

    def __init__(self) -> None:
        self._stepped = ""  # the class of an optimizer that has taken a step
        self._reduces = False
        self._hook: torch.utils.hooks.RemovableHandle | None = None

    def begin(self) -> None:
        """Begins to watch."""
        self.end()
        self._hook = register_optimizer_step_post_hook(self._note_step)

    def _note_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        self._stepped = self._stepped or type(optimizer).__name__

    def note_operation(self, tensor: torch.Tensor) -> None:
        """Takes a tensor that the program gives to an operation other than a broadcast."""
        if not self._reduces and (tensor.is_floating_point() or tensor.is_complex()):
            self._reduces = True

    def end(self) -> str:
        """Ends the watch. Returns the class of an optimizer whose gradients nothing has reduced, or ""."""
        if self._hook is not None:
            self._hook.remove()
        found = "" if self._reduces or self._hook is None else self._stepped
        self._hook, self._stepped, self._reduces = None, "", False
        return found


unreduced = Unreduced()
