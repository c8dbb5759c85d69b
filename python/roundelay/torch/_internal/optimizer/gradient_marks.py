"""Marks the gradients of a job of one rank in its timeline, as the hooks of a Reducer do on several ranks.

`roundelay plan` predicts from them. There are hooks only while a timeline is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from roundelay import _core
from roundelay.torch._internal.gradients.hooks import hooks_on
from roundelay.torch._internal.optimizer.arguments import prefix_of


class GradientMarks:
    """Hooks on the parameters of one optimizer whose gradients nobody reduces. They record arrivals.

    scope: the optimizer's number in its process set, for the names of gradients, as GradientSync's.
    """

    def __init__(self, scope: int, passes_per_step: int) -> None:
        self._marks = _core.GradientMarks()
        self.rules.passes_per_step = passes_per_step
        self._prefix = prefix_of(scope)
        self._marked: dict[int, _core.Gradient] = {}  # keys: id(parameter)
        self._hooks: dict[int, list[torch.utils.hooks.RemovableHandle]] = {}  # with the same keys

    @property
    def rules(self) -> _core.HookRules:
        """The settings of its hooks."""
        return self._marks.rules

    def follow(self, named: Mapping[torch.Tensor, str]) -> None:
        """Begins a step of a recorded timeline, with hooks on these parameters if they are trained."""
        present = set(map(id, named))
        for number, gradient in list(self._marked.items()):
            gradient.new_step()
            if number not in present or gradient.parameter is None:  # else the number is a new one's
                self._take_off(number)
        for parameter, name in named.items():
            if parameter.requires_grad and id(parameter) not in self._marked:
                self._hook(parameter, name)

    def _hook(self, parameter: torch.Tensor, name: str) -> None:
        gradient = _core.Gradient(parameter, f"{self._prefix}.{name}", True)
        self._marked[id(parameter)] = gradient
        self._hooks[id(parameter)] = hooks_on(parameter, gradient, _core.MarkHook(gradient, self._marks))

    def _take_off(self, number: int) -> None:
        del self._marked[number]
        for hook in self._hooks.pop(number):
            hook.remove()

    def close(self) -> None:
        """Takes all hooks off."""
        for number in list(self._marked):
            self._take_off(number)
