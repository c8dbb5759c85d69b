"""The tensors that steps have changed since the nodes' last average: nodes may have them unequal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import torch

from roundelay.torch.strategies._averaging.base import is_stepped


class Changes:
    """stepped: returns the optimizer's tensors with their names, in the canonical order."""

    def __init__(self, stepped: Callable[[], Mapping[torch.Tensor, str]]) -> None:
        self._stepped = stepped
        self._changed: set[torch.Tensor] = set()

    def begin_step(self, first: bool) -> None:
        """Notes what a step will change. first: it is the first one after an average."""
        if first:
            self._changed.clear()
        self._changed.update(one for one in self._stepped() if is_stepped(one))

    def named(self) -> dict[torch.Tensor, str]:
        """Returns the tensors with their names, in the canonical order; also those that were frozen since."""
        return {one: name for one, name in self._stepped().items() if one in self._changed}

    def take(self, names: Collection[str] | None) -> None:
        """Makes these the changed ones. None: those that are stepped now, as earlier versions had it."""
        every = self._stepped().items()
        self._changed = {one for one, name in every if (is_stepped(one) if names is None else name in names)}
