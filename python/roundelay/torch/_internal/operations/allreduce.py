"""allreduce of one tensor."""

from __future__ import annotations

from typing import Any

import torch

from roundelay import _core
from roundelay.torch._internal.operations.common import (
    LINEAR_OPS,
    OP_NAMES,
    Call,
    ScaledOp,
    gradient_name,
    recorded,
)
from roundelay.torch._internal.operations.handles import remember
from roundelay.torch._internal.operations.weighted import WeightedAverage, differentiable
from roundelay.torch.compression import Compression, Compressor
from roundelay.torch.process_sets import ProcessSet, global_process_set

Arguments = tuple[torch.Tensor, torch.Tensor, str | None, int, float, float, int]


def _checked(
    tensor: torch.Tensor,
    in_place: bool,
    average: bool | None,
    name: str | None,
    op: int | None,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> Arguments:
    """Returns the core's arguments."""
    with Call("allreduce", name, process_set) as call:
        call.check_tensor(tensor)
        reduction = call.checked_reduction([tensor], op, average, prescale_factor, postscale_factor)
    output = tensor if in_place else torch.empty_like(tensor)
    return tensor, output, name, *reduction, call.group


def _start(arguments: Arguments) -> int:
    return remember(_core.allreduce_async(*arguments), arguments[1])


def _run(arguments: Arguments) -> torch.Tensor:
    _core.allreduce(*arguments)
    return arguments[1]


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    weight: float | None = None,
) -> int:
    """Starts an allreduce; ``synchronize(handle)`` gives a new tensor like ``tensor``.

    Each element is ``op`` (default: Average) over all ranks of ``prescale_factor * element``, times
    ``postscale_factor``: each product is rounded to the tensor's type. Do not change ``tensor`` before then.
    ``average`` is deprecated: use ``op``. With ``weight``, such as the number of this rank's
    samples, it is sum(weight * element) / sum(weight). Half elements then travel as fp32.
    """
    if weight is not None:
        weighted = WeightedAverage(
            [tensor], False, average, name, op, prescale_factor, postscale_factor, process_set, weight
        )
        return weighted.start(alone=True)
    return _start(_checked(tensor, False, average, name, op, prescale_factor, postscale_factor, process_set))


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    weight: float | None = None,
) -> int:
    """Starts ``allreduce_async`` in place: ``synchronize(handle)`` returns ``tensor`` itself."""
    if weight is not None:
        weighted = WeightedAverage(
            [tensor], True, average, name, op, prescale_factor, postscale_factor, process_set, weight
        )
        return weighted.start(alone=True)
    return _start(_checked(tensor, True, average, name, op, prescale_factor, postscale_factor, process_set))


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    weight: float | None = None,
) -> torch.Tensor:
    """Reduces ``tensor`` in place and returns it. Autograd does not record this. See ``allreduce_async``."""
    if weight is not None:
        weighted = WeightedAverage(
            [tensor], True, average, name, op, prescale_factor, postscale_factor, process_set, weight
        )
        return weighted.run()[0]
    return _run(_checked(tensor, True, average, name, op, prescale_factor, postscale_factor, process_set))


class _Allreduce(torch.autograd.Function):
    """Reduces the ranks' gradients as it reduces the tensors: with the same op and factors."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        name: str | None,
        reduction: ScaledOp,
        process_set: ProcessSet,
    ) -> torch.Tensor:
        ctx.arguments = (name, reduction, process_set)
        return _run(_checked(tensor, False, None, name, *reduction, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        name, reduction, process_set = ctx.arguments
        if reduction[0] not in LINEAR_OPS:
            op = OP_NAMES[reduction[0]]
            raise RuntimeError(f"allreduce with op={op} has no gradient: use Average or Sum")
        reduced = recorded(_Allreduce, gradients[0], gradient_name(name), reduction, process_set)
        return reduced, None, None, None


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    weight: float | None = None,
) -> torch.Tensor:
    """Returns the allreduce of ``tensor`` as a new tensor.

    ``compression`` is applied before, and undone after. See ``allreduce_async`` for ``op`` and the factors.
    Differentiable for Average and Sum: the gradient is the allreduce, with the same ``op`` and factors and
    over the same set, of the ranks' gradients; with ``weight``, this rank's share of their sum.
    """
    if weight is not None:
        return differentiable(
            [tensor], average, name, compression, op, prescale_factor, postscale_factor, process_set, weight
        )[0]
    with Call("allreduce", name, process_set) as call:
        call.check_tensor(tensor)
        reduction = call.checked_reduction([tensor], op, average, prescale_factor, postscale_factor)
        ((wire, context),) = call.compressed(compression, [tensor])
    reduced: torch.Tensor = recorded(_Allreduce, wire, name, reduction, process_set)
    return compression.decompress(reduced, context)
