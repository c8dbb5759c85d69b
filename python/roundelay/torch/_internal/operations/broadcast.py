"""broadcast: every rank gets the root's tensor."""

from __future__ import annotations

import operator
from typing import Any

import torch

from roundelay import _core
from roundelay.torch._internal.operations.allreduce import allreduce
from roundelay.torch._internal.operations.common import (
    Average,
    Call,
    Sum,
    exact_gradients,
    gradient_name,
    recorded,
)
from roundelay.torch._internal.operations.handles import remember
from roundelay.torch.process_sets import ProcessSet, global_process_set


def checked_root(root_rank: Any, call: Call, process_set: ProcessSet) -> int:
    """Returns the root's world rank. ValueError: it is none of the set."""
    try:
        root = operator.index(root_rank)
    except TypeError:
        raise call.wrong(f"root_rank is {root_rank!r}, but must be an int") from None
    if not 0 <= root < _core.size():
        raise call.wrong(f"root_rank is {root}, but ranks go from 0 to {_core.size() - 1}")
    if root not in process_set.ranks:
        raise call.wrong(f"root_rank is {root}, a world rank, but the process set has {process_set.ranks}")
    return root


Arguments = tuple[torch.Tensor, torch.Tensor, int, str | None, int]


def _checked(
    tensor: torch.Tensor, in_place: bool, root_rank: int, name: str | None, process_set: ProcessSet
) -> Arguments:
    """Returns the core's arguments."""
    with Call("broadcast", name, process_set) as call:
        call.check_tensor(tensor)
        root = checked_root(root_rank, call, process_set)
    output = tensor if in_place else torch.empty_like(tensor)
    return tensor, output, root, name, call.group


def _start(arguments: Arguments) -> int:
    return remember(_core.broadcast_async(*arguments), arguments[1])


def _run(arguments: Arguments) -> torch.Tensor:
    _core.broadcast(*arguments)
    return arguments[1]


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts a broadcast of the root's tensor; ``synchronize(handle)`` gives it as a new tensor."""
    return _start(_checked(tensor, False, root_rank, name, process_set))


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts a broadcast that overwrites ``tensor`` with the root's; ``synchronize(handle)`` returns it."""
    return _start(_checked(tensor, True, root_rank, name, process_set))


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Overwrites ``tensor`` with the root's; returns ``tensor``. Autograd does not record this."""
    return _run(_checked(tensor, True, root_rank, name, process_set))


class _Broadcast(torch.autograd.Function):
    """Reduces the gradients to the root, as all outputs depend on the root's input only."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor:
        ctx.arguments = (root_rank, name, process_set)
        return _run(_checked(tensor, False, root_rank, name, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        root_rank, name, process_set = ctx.arguments
        op = Sum if exact_gradients() else Average
        reduced = allreduce(gradients[0], name=gradient_name(name), op=op, process_set=process_set)
        # Other ranks multiply by 0, which keeps the graph: a second backward comes to all ranks.
        return reduced if _core.rank() == root_rank else reduced * 0, None, None, None


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Returns the root's tensor as a new one. ``root_rank`` is a world rank, also in a process set.

    Differentiable: the root's gradient is the average over ranks of the gradients, as Horovod's, or with
    ROUNDELAY_EXACT_GRADIENTS=1 their sum, the exact one of the sum of all ranks' losses; the others' is zero.
    """
    with Call("broadcast", name, process_set) as call:
        call.check_tensor(tensor)
        root = checked_root(root_rank, call, process_set)
    result: torch.Tensor = recorded(_Broadcast, tensor, root, name, process_set)
    return result
