"""The hooks of ``step()``, once in each step.

torch wraps ``step()`` of a class when the class has its first object. If a subclass's ``step()`` calls that
of its base class, both may be wrapped, and hooks run in both.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch

from roundelay.torch._internal.optimizer.bound_method import BoundMethod

_STEP = torch.optim.Optimizer.profile_hook_step(lambda _: None).__code__


class StepHook(BoundMethod):
    """A method as a hook of one optimizer's steps. It does nothing in a step that another one calls."""

    def __call__(self, optimizer: torch.optim.Optimizer, *args: Any) -> Any:
        """Calls the method."""
        return None if _is_inner(optimizer) else super().__call__(optimizer, *args)


def _is_inner(optimizer: torch.optim.Optimizer) -> bool:
    kinds = type(optimizer).__mro__
    if sum(getattr(vars(kind).get("step"), "hooked", False) for kind in kinds) < 2:
        return False
    steps = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        steps += frame.f_code is _STEP and frame.f_locals.get("self") is optimizer
        frame = frame.f_back
    return steps > 1
