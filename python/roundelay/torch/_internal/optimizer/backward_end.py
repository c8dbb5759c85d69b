"""Passes the end of a backward inside a backward on to the outer one (csrc/gradients/backward_end.h)."""

from __future__ import annotations

from typing import Any

import torch

from roundelay import _core


def pass_on() -> None:
    """Makes the outer backward, whose node is evaluated now, end the listeners. The core calls it."""
    outer_node: Any = torch._C._current_autograd_node()
    hooks: list[Any] = []

    def in_outer_backward(*_: Any) -> None:
        for hook in hooks:
            hook.remove()
        _core.queue_backward_end()

    for successor, _ in outer_node.next_functions:
        if successor is not None:
            hooks.append(successor.register_prehook(in_outer_backward))
