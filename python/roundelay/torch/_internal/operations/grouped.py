"""allreduce of several tensors as one operation: all or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from roundelay import _core
from roundelay.torch._internal.operations.common import (
    LINEAR_OPS,
    OP_NAMES,
    Call,
    ScaledOp,
    are_differentiable,
    decompressed,
    gradient_name,
    never_empty,
    only_differentiable,
    recorded,
    with_none,
)
from roundelay.torch._internal.operations.handles import remember
from roundelay.torch._internal.operations.weighted import WeightedAverage, differentiable
from roundelay.torch.compression import Compression, Compressor
from roundelay.torch.process_sets import ProcessSet, global_process_set

Arguments = tuple[list[torch.Tensor], list[torch.Tensor], str | None, int, float, float, int]


def _checked(
    tensors: Sequence[torch.Tensor],
    in_place: bool,
    average: bool | None,
    name: str | None,
    op: int | None,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> Arguments:
    """Returns the core's arguments: one tensor without elements for an empty group."""
    with Call("allreduce", name, process_set) as call:
        group = call.checked_group(tensors)
        reduction = call.checked_reduction(group, op, average, prescale_factor, postscale_factor)
        if in_place:
            call.check_apart(group)
    sent = never_empty(group)
    outputs = sent if in_place else [torch.empty_like(tensor) for tensor in sent]
    return sent, outputs, name, *reduction, call.group


def _start(tensors: Sequence[torch.Tensor], arguments: Arguments) -> int:
    count = len(tensors)
    return remember(_core.grouped_allreduce_async(*arguments), arguments[1][:count])


def _run(tensors: Sequence[torch.Tensor], arguments: Arguments) -> list[torch.Tensor]:
    _core.grouped_allreduce(*arguments)
    return arguments[1][: len(tensors)]


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    weight: float | None = None,
) -> int:
    """Starts the allreduce of all ``tensors``; ``synchronize(handle)`` gives a list of new ones.

    Either all are reduced or none. They may differ in dtype and shape; on all ranks there are as many. See
    ``allreduce_async``.
    """
    if weight is not None:
        weighted = WeightedAverage(
            tensors, False, average, name, op, prescale_factor, postscale_factor, process_set, weight
        )
        return weighted.start()
    arguments = _checked(tensors, False, average, name, op, prescale_factor, postscale_factor, process_set)
    return _start(tensors, arguments)


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    weight: float | None = None,
) -> int:
    """Starts ``grouped_allreduce_async`` in place: ``synchronize(handle)`` returns the tensors themselves."""
    if weight is not None:
        weighted = WeightedAverage(
            tensors, True, average, name, op, prescale_factor, postscale_factor, process_set, weight
        )
        return weighted.start()
    arguments = _checked(tensors, True, average, name, op, prescale_factor, postscale_factor, process_set)
    return _start(tensors, arguments)


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    weight: float | None = None,
) -> list[torch.Tensor]:
    """Reduces all ``tensors`` in place and returns them. Autograd does not record this."""
    if weight is not None:
        weighted = WeightedAverage(
            tensors, True, average, name, op, prescale_factor, postscale_factor, process_set, weight
        )
        return weighted.run()
    arguments = _checked(tensors, True, average, name, op, prescale_factor, postscale_factor, process_set)
    return _run(tensors, arguments)


class _GroupedAllreduce(torch.autograd.Function):
    """Reduces the ranks' gradients of each tensor as _Allreduce does."""

    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        reduction: ScaledOp,
        process_set: ProcessSet,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.arguments = (name, reduction, process_set)
        ctx.differentiable = are_differentiable(tensors)
        return tuple(_run(tensors, _checked(tensors, False, None, name, *reduction, process_set)))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        name, reduction, process_set = ctx.arguments
        if reduction[0] not in LINEAR_OPS:
            op = OP_NAMES[reduction[0]]
            raise RuntimeError(f"grouped_allreduce with op={op} has no gradient: use Average or Sum")
        own = only_differentiable(gradients, ctx.differentiable)
        reduced = recorded(_GroupedAllreduce, gradient_name(name), reduction, process_set, *own)
        return None, None, None, *with_none(reduced, ctx.differentiable)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    weight: float | None = None,
) -> list[torch.Tensor]:
    """Returns the allreduce of each tensor, all or nothing; differentiable as ``allreduce`` is."""
    if weight is not None:
        return differentiable(
            tensors, average, name, compression, op, prescale_factor, postscale_factor, process_set, weight
        )
    with Call("allreduce", name, process_set) as call:
        group = call.checked_group(tensors)
        reduction = call.checked_reduction(group, op, average, prescale_factor, postscale_factor)
        wires = call.compressed(compression, group)
    if not group:
        return grouped_allreduce_([], None, name, *reduction, process_set)
    reduced = recorded(_GroupedAllreduce, name, reduction, process_set, *(wire for wire, _ in wires))
    return decompressed(compression, reduced, wires)
