"""The hooks on a parameter: its gradient's state follows autograd (csrc/bindings/gradient_hooks.cc)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils.hooks import RemovableHandle, unserializable_hook

from roundelay import _core
from roundelay.torch.untraced import untraced


def hooks_on(
    parameter: torch.Tensor, gradient: _core.Gradient, rules: _core.HookRules, arrived: Callable[[], None]
) -> list[RemovableHandle]:
    """Puts hooks on the parameter. gradient: the parameter's. arrived: called where Python goes on."""
    before, after = _core.BeforeHook(gradient), _core.AfterHook(gradient, rules, untraced(arrived))
    unserializable_hook(before)  # so that pickling the parameter does not warn
    return [parameter.register_hook(before), parameter.register_post_accumulate_grad_hook(after)]
