"""allgather of one tensor or of several: concatenation over ranks along the first dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from roundelay import _core
from roundelay.torch.operations.common import Call, Sum, gradient_name, recorded
from roundelay.torch.operations.grouped import grouped_allreduce
from roundelay.torch.operations.handles import done, remember, synchronize
from roundelay.torch.process_sets import ProcessSet, global_process_set


def _checked(tensors: Sequence[torch.Tensor], call: Call) -> list[torch.Tensor]:
    group = call.checked_group(tensors)
    for tensor in group:
        call.check_rows(tensor)
    return group


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts an allgather; ``synchronize(handle)`` gives the ranks' tensors one below the other.

    The first dimension may differ between ranks, the others must not. ``tensor`` must not be changed before.
    """
    with Call("allgather", name, process_set) as call:
        call.check_rows(tensor)
    return remember(_core.allgather_async([tensor], name, call.group), lambda outputs: outputs[0])


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Like ``allgather_async`` of each tensor, all or nothing; ``synchronize(handle)`` gives a list."""
    with Call("allgather", name, process_set) as call:
        group = _checked(tensors, call)
    if not group:
        return done([])
    return remember(_core.allgather_async(group, name, call.group), lambda outputs: outputs)


class _Allgather(torch.autograd.Function):
    """Every rank's output has this rank's rows: their gradient is the sum of what all ranks have for them."""

    @staticmethod
    def forward(
        ctx: Any, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.arguments = (name, process_set)
        ctx.rows = [tensor.shape[0] if tensor.dtype.is_floating_point else None for tensor in tensors]
        return tuple(synchronize(grouped_allgather_async(tensors, name, process_set)))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        name, process_set = gradient_name(ctx.arguments[0]), ctx.arguments[1]
        mine = torch.tensor([[rows for rows in ctx.rows if rows is not None]])
        rows = allgather(mine, name and f"{name}.rows", process_set)
        ends = iter(rows[: process_set.rank() + 1].sum(0).tolist())
        floating = [g for g, own in zip(gradients, ctx.rows, strict=True) if own is not None]
        sums = iter(grouped_allreduce(floating, name=name, op=Sum, process_set=process_set))
        result: list[torch.Tensor | None] = []
        for own in ctx.rows:
            result.append(None if own is None else next(sums).narrow(0, next(ends) - own, own))
        return None, None, *result


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """The ranks' tensors one below the other, in the order of ranks; the first dimension may differ.

    Differentiable: the gradient is the sum over ranks of the gradients of this rank's rows.
    """
    with Call("allgather", name, process_set) as call:
        call.check_rows(tensor)
    gathered: torch.Tensor = recorded(_Allgather, name, process_set, tensor)[0]
    return gathered


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """Like ``allgather`` of each tensor, all or nothing; differentiable as it is."""
    with Call("allgather", name, process_set) as call:
        group = _checked(tensors, call)
    return list(recorded(_Allgather, name, process_set, *group)) if group else []
