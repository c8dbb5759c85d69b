"""allreduce of one tensor."""

from __future__ import annotations

from typing import Any

import torch

from roundelay import _core
from roundelay.torch.compression import Compression, Compressor
from roundelay.torch.operations.common import LINEAR_OPS, OP_NAMES, Call, gradient_name, recorded
from roundelay.torch.operations.handles import remember
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
    """The core's arguments."""
    with Call("allreduce", name, process_set) as call:
        call.check_tensor(tensor)
        number = call.checked_reduction([tensor], op, average)
        factors = call.checked_factors(prescale_factor, postscale_factor)
    output = tensor if in_place else torch.empty_like(tensor)
    return tensor, output, name, number, *factors, call.group


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
) -> int:
    """Starts an allreduce; ``synchronize(handle)`` gives a new tensor like ``tensor``.

    Each element is ``op`` over all ranks of ``prescale_factor * element``, times ``postscale_factor``: each
    product is rounded to the tensor's type. ``tensor`` must not be changed before then. ``average`` is
    deprecated: use ``op``.
    """
    return _start(_checked(tensor, False, average, name, op, prescale_factor, postscale_factor, process_set))


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Like ``allreduce_async``, in place: ``synchronize(handle)`` returns ``tensor`` itself."""
    return _start(_checked(tensor, True, average, name, op, prescale_factor, postscale_factor, process_set))


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Allreduce in place; returns ``tensor``. Not recorded by autograd."""
    return _run(_checked(tensor, True, average, name, op, prescale_factor, postscale_factor, process_set))


class _Allreduce(torch.autograd.Function):
    """The gradient of a sum over ranks is the sum over ranks of the gradients; scales apply alike."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        name: str | None,
        op: int,
        factors: tuple[float, float],
        process_set: ProcessSet,
    ) -> torch.Tensor:
        ctx.arguments = (name, op, factors, process_set)
        return _run(_checked(tensor, False, None, name, op, *factors, process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        name, op, factors, process_set = ctx.arguments
        if op not in LINEAR_OPS:
            raise RuntimeError(f"allreduce with op={OP_NAMES[op]} has no gradient: use Average or Sum")
        arguments = (gradient_name(name), op, factors, process_set)
        return recorded(_Allreduce, gradients[0], *arguments), None, None, None, None


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Allreduce into a new tensor like ``tensor``.

    ``compression`` is applied before, and undone after. See ``allreduce_async`` for the scale factors.
    Differentiable for Average and Sum: the gradient is the allreduce, with the same ``op`` and factors and
    over the same set, of the ranks' gradients.
    """
    with Call("allreduce", name, process_set) as call:
        call.check_tensor(tensor)
        number = call.checked_reduction([tensor], op, average)
        factors = call.checked_factors(prescale_factor, postscale_factor)
        call.check_compression(compression)
        wire, context = compression.compress(tensor)
    reduced: torch.Tensor = recorded(_Allreduce, wire, name, number, factors, process_set)
    return compression.decompress(reduced, context)
