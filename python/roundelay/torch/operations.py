"""Collective operations on tensors: allreduce, broadcast, barrier; also asynchronous and in place.

Every rank calls the same operations under the same names; the order may differ. Operations without a name
are numbered, so those must come in the same order everywhere. Errors: ValueError for a wrong call,
HorovodInternalError where ranks disagree (dtype, shape, op, root) or a peer failed.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch

from roundelay import _core
from roundelay.errors import NotInThisVersionError
from roundelay.torch.compression import Compression, Compressor
from roundelay.torch.process_sets import ProcessSet, global_process_set, set_id

Average, Sum, Adasum, Min, Max, Product = range(6)
LINEAR_OPS = (Average, Sum)
_OP_NAMES = ("Average", "Sum", "Adasum", "Min", "Max", "Product")


@dataclass(slots=True)
class _Pending:
    """Keeps the tensors of an operation alive until it is waited for."""

    source: torch.Tensor
    output: torch.Tensor
    in_place: bool


_pending: dict[int, _Pending] = {}


def checked_op(op: int | None, average: bool | None) -> int:
    """``op`` with Horovod's deprecated ``average`` folded in. ValueError: both given, or no such op."""
    if op is not None and average is not None:
        raise ValueError("give either op or the deprecated average, not both")
    if average is not None:
        warnings.warn(
            "average is deprecated: use op=hvd.Average or op=hvd.Sum", DeprecationWarning, stacklevel=4
        )
        return Average if average else Sum
    if op is None:
        return Average
    if op == Adasum:
        raise NotInThisVersionError("op=Adasum is not in this version yet: use Average or Sum")
    if not isinstance(op, int) or not 0 <= op < len(_OP_NAMES):
        raise ValueError(f"op is {op!r}, but must be one of hvd.{', hvd.'.join(_OP_NAMES)}")
    return op


def _check_tensor(tensor: torch.Tensor) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"a torch.Tensor is needed, not {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise ValueError(f"a dense tensor is needed, not {tensor.layout}: use tensor.to_dense()")
    if tensor.device.type == "meta":
        raise ValueError("a tensor on the meta device has no data to send")


def _check_root(root_rank: int) -> None:
    if not 0 <= root_rank < _core.size():
        raise ValueError(f"root_rank is {root_rank}, but ranks go from 0 to {_core.size() - 1}")


class _PeersLearn:
    """Passes a failed local check on to the peers, which would otherwise wait for this rank."""

    def __init__(self, operation: str, name: str | None) -> None:
        self.operation, self.name = operation, name

    def __enter__(self) -> None:
        _core.size()  # not initialized: that is the error, and there are no peers

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is not None and _core.is_initialized():
            _core.submit_error(self.operation, self.name, str(error), global_process_set.process_set_id)


def _remember(handle: int, source: torch.Tensor, output: torch.Tensor) -> int:
    _pending[handle] = _Pending(source, output, in_place=source is output)
    return handle


def _start_allreduce(
    tensor: torch.Tensor,
    output: torch.Tensor | None,
    average: bool | None,
    name: str | None,
    op: int | None,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
) -> int:
    with _PeersLearn("allreduce", name):
        number = checked_op(op, average)
        _check_tensor(tensor)
        group = set_id(process_set)
    source = tensor.detach()
    result = torch.empty_like(source) if output is None else source
    handle = _core.allreduce_async(source, result, name, number, prescale_factor, postscale_factor, group)
    return _remember(handle, source if output is None else tensor, result if output is None else tensor)


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

    Each element is ``op`` over all ranks of ``prescale_factor * element``, times ``postscale_factor``.
    ``tensor`` must not be changed before then.
    """
    return _start_allreduce(tensor, None, average, name, op, prescale_factor, postscale_factor, process_set)


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
    return _start_allreduce(tensor, tensor, average, name, op, prescale_factor, postscale_factor, process_set)


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
    handle = _start_allreduce(
        tensor, tensor, average, name, op, prescale_factor, postscale_factor, process_set
    )
    return _result(handle)


class _Allreduce(torch.autograd.Function):
    """The gradient of a sum over ranks is the sum over ranks of the gradients; scales apply alike."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, name: str | None, op: int, pre: float, post: float
    ) -> torch.Tensor:
        ctx.arguments = (name, op, pre, post)
        return _result(_start_allreduce(tensor, None, None, name, op, pre, post, global_process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        name, op, pre, post = ctx.arguments
        if op not in LINEAR_OPS:
            raise RuntimeError(f"allreduce with op={_OP_NAMES[op]} has no gradient: use Average or Sum")
        backward_name = None if name is None else f"{name}.gradient"
        return _Allreduce.apply(gradients[0], backward_name, op, pre, post), None, None, None, None  # type: ignore[no-untyped-call]


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
    """Allreduce into a new tensor like ``tensor``; differentiable for Average and Sum.

    ``compression`` is applied before, and undone after. See ``allreduce_async`` for the scale factors.
    """
    with _PeersLearn("allreduce", name):
        number = checked_op(op, average)
        _check_tensor(tensor)
        set_id(process_set)
    wire, context = compression.compress(tensor)
    reduced: torch.Tensor = _Allreduce.apply(wire, name, number, prescale_factor, postscale_factor)  # type: ignore[no-untyped-call]
    return compression.decompress(reduced, context)


def _start_broadcast(
    tensor: torch.Tensor, in_place: bool, root_rank: int, name: str | None, process_set: ProcessSet
) -> int:
    with _PeersLearn("broadcast", name):
        _check_tensor(tensor)
        _check_root(root_rank)
        group = set_id(process_set)
    source = tensor.detach()
    result = source if in_place else torch.empty_like(source)
    handle = _core.broadcast_async(source, result, root_rank, name, group)
    return _remember(handle, tensor if in_place else source, tensor if in_place else result)


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts a broadcast of the root's tensor; ``synchronize(handle)`` gives it as a new tensor."""
    return _start_broadcast(tensor, False, root_rank, name, process_set)


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts a broadcast that overwrites ``tensor`` with the root's; ``synchronize(handle)`` returns it."""
    return _start_broadcast(tensor, True, root_rank, name, process_set)


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Overwrites ``tensor`` with the root's; returns it. Not recorded by autograd."""
    return _result(broadcast_async_(tensor, root_rank, name, process_set))


class _Broadcast(torch.autograd.Function):
    """All outputs depend on the root's input: its gradient is their sum, the others' is zero."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None) -> torch.Tensor:
        ctx.arguments = (root_rank, name)
        return _result(_start_broadcast(tensor, False, root_rank, name, global_process_set))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        root_rank, name = ctx.arguments
        total = allreduce(gradients[0], op=Sum, name=None if name is None else f"{name}.gradient")
        return total if _core.rank() == root_rank else torch.zeros_like(total), None, None


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The root's tensor as a new tensor on every rank; differentiable. ``root_rank`` is a world rank."""
    with _PeersLearn("broadcast", name):
        set_id(process_set)
    return _Broadcast.apply(tensor, root_rank, name)  # type: ignore[no-untyped-call,no-any-return]


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every rank has called it."""
    _core.synchronize(_core.barrier_async(set_id(process_set)))


def poll(handle: int) -> bool:
    """Whether ``synchronize(handle)`` would return (or raise) at once. ValueError for an unknown handle."""
    return _core.poll(handle)


def synchronize(handle: int) -> torch.Tensor | None:
    """Sleeps until the operation is done and returns its result; None for an unknown handle."""
    pending = _pending.pop(handle, None)
    if not _core.synchronize(handle) or pending is None:
        return None
    if pending.in_place:
        torch.autograd.graph.increment_version(
            pending.output
        )  # so that autograd notices a changed saved tensor
    return pending.output


def _result(handle: int) -> torch.Tensor:
    result = synchronize(handle)
    if result is None:
        raise RuntimeError(f"handle {handle} was waited for twice")
    return result
