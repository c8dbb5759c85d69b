"""Marks the gradients of a job of one rank in its timeline, as gradient_sync.py's hooks do on several ranks.

`roundelay plan` predicts from them. There are hooks only while a timeline is recorded.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping

import torch

from roundelay import _core
from roundelay.torch.gradients.hooks import hooks_on
from roundelay.torch.optimizer.arguments import prefix_of
from roundelay.torch.optimizer.backward_end import backward_end


class GradientMarks:
    """Hooks on the parameters of one optimizer whose gradients nobody reduces. They record arrivals.

    scope: the optimizer's number in its process set, for the names of gradients, as GradientSync's.
    """

    order = (-2, 0)  # it waits for nobody

    def __init__(self, scope: int, passes_per_step: int) -> None:
        self.rules = _core.HookRules()
        self.rules.passes_per_step = passes_per_step
        self.rules.marking = True
        self.rules.recording = True  # each hook calls its `arrived`
        self._prefix = prefix_of(scope)
        self._gradients: dict[int, _core.Gradient] = {}  # keys: id(parameter)
        self._hooks: dict[int, list[torch.utils.hooks.RemovableHandle]] = {}  # with the same keys

    def follow(self, named: Mapping[torch.Tensor, str]) -> None:
        """Begins a step of a recorded timeline. Has hooks on those of these parameters that are trained."""
        present = set(map(id, named))
        for number, gradient in list(self._gradients.items()):
            gradient.new_step()
            if number not in present or gradient.parameter is None:  # else the number is a new one's
                self._take_off(number)
        for parameter, name in named.items():
            if parameter.requires_grad and id(parameter) not in self._gradients:
                self._hook(parameter, name)

    def _hook(self, parameter: torch.Tensor, name: str) -> None:
        gradient = _core.Gradient(parameter, f"{self._prefix}.{name}", True)
        listener = weakref.ref(self)

        def arrived() -> None:
            gradient.set_passes(0)  # as if a reduction had taken it
            marks = listener()
            if marks is not None:
                backward_end.add(marks)
                backward_end.end_if_compiled()

        self._gradients[id(parameter)] = gradient
        self._hooks[id(parameter)] = hooks_on(parameter, gradient, self.rules, arrived)

    def _take_off(self, number: int) -> None:
        del self._gradients[number]
        for hook in self._hooks.pop(number):
            hook.remove()

    def close(self) -> None:
        """Takes all hooks off."""
        for number in list(self._gradients):
            self._take_off(number)

    # -- a Listener (backward_end.py)

    def backward_ended(self) -> bool:
        """Returns False: there is nothing to wait for."""
        return False

    def begin_round(self, final: bool, alone: bool) -> None:
        """Does nothing: backward_ended() never asks for it."""

    def end_round(self) -> None:
        """Does nothing, as begin_round()."""
