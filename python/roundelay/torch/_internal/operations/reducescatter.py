"""reducescatter of one tensor or of several: each rank gets some rows of the reduced tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from roundelay import _core
from roundelay.torch._internal.operations.allgather import grouped_allgather
from roundelay.torch._internal.operations.common import (
    LINEAR_OPS,
    Average,
    Call,
    ScaledOp,
    Sum,
    are_differentiable,
    decompressed,
    exact_gradients,
    gradient_name,
    never_empty,
    only_differentiable,
    recorded,
    with_none,
)
from roundelay.torch._internal.operations.handles import remember
from roundelay.torch.compression import Compression, Compressor
from roundelay.torch.process_sets import ProcessSet, global_process_set


def _checked(
    tensors: Sequence[torch.Tensor], op: int, prescale_factor: float, postscale_factor: float, call: Call
) -> tuple[list[torch.Tensor], ScaledOp]:
    group = call.checked_group(tensors)
    for tensor in group:
        call.check_rows(tensor)
    reduction = call.checked_reduction(group, op, None, prescale_factor, postscale_factor)
    if reduction[0] not in LINEAR_OPS:
        raise call.wrong("op must be hvd.Average or hvd.Sum")
    return group, reduction


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts a reducescatter; ``synchronize(handle)`` gives this rank's rows of the reduced tensor.

    All ranks get the same number of rows; the first ``rows % size`` ranks get one more. ``op``: Average, Sum.
    See ``allreduce_async`` for the scale factors. Do not change ``tensor`` before then.
    """
    with Call("reducescatter", name, process_set) as call:
        group, reduction = _checked([tensor], op, prescale_factor, postscale_factor, call)
    handle = _core.reducescatter_async(group, name, *reduction, call.group)
    return remember(handle, lambda outputs: outputs[0])


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts ``reducescatter_async`` of each tensor, all or nothing; ``synchronize(handle)`` gives a list."""
    with Call("reducescatter", name, process_set) as call:
        group, reduction = _checked(tensors, op, prescale_factor, postscale_factor, call)
    handle = _core.reducescatter_async(never_empty(group), name, *reduction, call.group)
    return remember(handle, lambda outputs: outputs[: len(group)])


def _run(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    reduction: ScaledOp,
    process_set: ProcessSet,
) -> list[torch.Tensor]:
    with Call("reducescatter", name, process_set) as call:
        group, reduction = _checked(tensors, *reduction, call)
    return _core.reducescatter(never_empty(group), name, *reduction, call.group)[: len(group)]


def _gradient_factors(reduction: ScaledOp, size: int) -> list[float]:
    """Returns the factors of this rank's gradient, to be applied one after the other."""
    op, before, after = reduction
    if exact_gradients():
        return [before * after / (size if op == Average else 1)]
    return [factor for factor in (size if op == Sum else 1, before, after) if factor != 1]


class _Reducescatter(torch.autograd.Function):
    """Gives row i to one rank; that rank's gradient of the row goes to row i of every rank."""

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
        return tuple(_run(tensors, name, reduction, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        name, reduction, process_set = ctx.arguments
        own = only_differentiable(gradients, ctx.differentiable)
        for factor in _gradient_factors(reduction, process_set.size()):
            own = [gradient * factor for gradient in own]
        gathered = grouped_allgather(own, gradient_name(name), process_set)
        return None, None, None, *with_none(gathered, ctx.differentiable)


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Returns this rank's rows of the reduced tensor: see ``reducescatter_async``.

    Differentiable: the gradient is the allgather of the ranks' gradients, times both factors. With Sum it is
    multiplied by the number of ranks, as Horovod's. With ROUNDELAY_EXACT_GRADIENTS=1 that is left out, and
    with Average it is divided by the number of ranks: the exact one of the sum of all ranks' losses.
    """
    with Call("reducescatter", name, process_set) as call:
        group, reduction = _checked([tensor], op, prescale_factor, postscale_factor, call)
        ((wire, context),) = call.compressed(compression, group)
    return compression.decompress(recorded(_Reducescatter, name, reduction, process_set, wire)[0], context)


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Returns the ``reducescatter`` of each tensor, all or nothing; differentiable as that is."""
    with Call("reducescatter", name, process_set) as call:
        group, reduction = _checked(tensors, op, prescale_factor, postscale_factor, call)
        wires = call.compressed(compression, group)
    if not group:
        return _run([], name, reduction, process_set)
    scattered = recorded(_Reducescatter, name, reduction, process_set, *(wire for wire, _ in wires))
    return decompressed(compression, scattered, wires)
