"""allgather of one or several tensors: concatenates the ranks' tensors along the first dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from roundelay import _core
from roundelay.errors import HorovodInternalError
from roundelay.torch._internal.operations.common import (
    Average,
    Call,
    Sum,
    are_differentiable,
    exact_gradients,
    gradient_name,
    never_empty,
    recorded,
    row_of_this_rank,
)
from roundelay.torch._internal.operations.grouped import grouped_allreduce
from roundelay.torch._internal.operations.handles import remember
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

    The first dimension may differ between ranks, the others must not. Do not change ``tensor`` before then.
    """
    with Call("allgather", name, process_set) as call:
        call.check_rows(tensor)
    return remember(_core.allgather_async([tensor], name, call.group), lambda outputs: outputs[0])


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts ``allgather_async`` of each tensor, all or nothing; ``synchronize(handle)`` gives a list."""
    with Call("allgather", name, process_set) as call:
        group = _checked(tensors, call)
    handle = _core.allgather_async(never_empty(group), name, call.group)
    return remember(handle, lambda outputs: outputs[: len(group)])


def _run(tensors: Sequence[torch.Tensor], name: str | None, process_set: ProcessSet) -> list[torch.Tensor]:
    with Call("allgather", name, process_set) as call:
        group = _checked(tensors, call)
    return _core.allgather(never_empty(group), name, call.group)[: len(group)]


class _Allgather(torch.autograd.Function):
    """Reduces the gradients of each rank's rows over all ranks, as every output has these rows."""

    @staticmethod
    def forward(
        ctx: Any, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.arguments = (name, process_set)
        which = are_differentiable(tensors)
        ctx.rows = [
            one.shape[0] if has_gradient else None for one, has_gradient in zip(tensors, which, strict=True)
        ]
        return tuple(_run(tensors, name, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        name, process_set = gradient_name(ctx.arguments[0]), ctx.arguments[1]
        given = [g for g, own in zip(gradients, ctx.rows, strict=True) if own is not None]
        begins = iter(_begins([own for own in ctx.rows if own is not None], given, name, process_set))
        op = Sum if exact_gradients() else Average
        reduced = iter(grouped_allreduce(given, name=name, op=op, process_set=process_set))
        result: list[torch.Tensor | None] = []
        for own in ctx.rows:
            result.append(None if own is None else next(reduced).narrow(0, next(begins), own))
        return None, None, *result


def _begins(
    own: list[int], gathered: list[torch.Tensor], name: str | None, process_set: ProcessSet
) -> list[int]:
    """Returns the first of this rank's own rows in each of the gathered tensors."""
    heads = allgather(row_of_this_rank(*own), name and f"{name}.rows", process_set)
    ranks, rows = heads[:, 0], heads[:, 1:]
    if rows.sum(0).tolist() != [tensor.shape[0] for tensor in gathered]:
        of = f" of {name!r}" if name else ""
        raise HorovodInternalError(
            f"allgather{of}: only ranks {ranks.tolist()} compute this gradient, but more of them gathered; "
            "a rank may call join() only after the backward of what it has gathered"
        )
    begins: list[int] = rows[ranks < _core.rank()].sum(0).tolist()
    return begins


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Returns the ranks' tensors one below the other, in the order of ranks; the first dimension may differ.

    Differentiable: the gradient is the average over ranks of the gradients of this rank's rows, as Horovod's;
    with ROUNDELAY_EXACT_GRADIENTS=1 their sum, the exact one of the sum of all ranks' losses.
    """
    with Call("allgather", name, process_set) as call:
        call.check_rows(tensor)
    gathered: torch.Tensor = recorded(_Allgather, name, process_set, tensor)[0]
    return gathered


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """Returns the ``allgather`` of each tensor, all or nothing; differentiable as ``allgather`` is."""
    with Call("allgather", name, process_set) as call:
        group = _checked(tensors, call)
    if not group:
        return _run([], name, process_set)
    return list(recorded(_Allgather, name, process_set, *group))
