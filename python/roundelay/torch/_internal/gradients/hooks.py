"""The hooks on a parameter: its gradient's state follows autograd (csrc/gradients/hooks.h)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils.hooks import RemovableHandle, unserializable_hook

from roundelay import _core


def hooks_on(
    parameter: torch.Tensor, gradient: _core.Gradient, after: _core.AfterHook | _core.MarkHook
) -> list[RemovableHandle]:
    """Puts hooks on the parameter. gradient: the parameter's. after: runs when autograd has added to it.

    It runs after all other hooks of that kind, also those that come later.
    """
    before = _core.BeforeHook(gradient)
    unserializable_hook(before)  # so that pickling the parameter does not warn
    handles = [parameter.register_hook(before), parameter.register_post_accumulate_grad_hook(after)]
    before.keep_last(parameter._post_accumulate_grad_hooks, handles[1].id)
    return handles


def hook_behind_others(parameter: torch.Tensor, after: Callable[..., None]) -> RemovableHandle:
    """Puts a hook on the parameter that runs after all others of its kind, also those that come later."""
    handle: RemovableHandle = parameter.register_post_accumulate_grad_hook(after)
    hooks = parameter._post_accumulate_grad_hooks

    def move(_incoming: torch.Tensor) -> None:
        if handle.id in hooks and next(reversed(hooks)) != handle.id:
            hooks[handle.id] = hooks.pop(handle.id)

    unserializable_hook(move)
    parameter.register_hook(move)
    return handle
