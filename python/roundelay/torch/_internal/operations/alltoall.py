"""alltoall: each rank sends some rows to each rank."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Set
from typing import Any, SupportsIndex, overload

import torch

from roundelay import _core
from roundelay.torch._internal.operations.common import Call, gradient_name, recorded
from roundelay.torch._internal.operations.handles import remember
from roundelay.torch.process_sets import ProcessSet, global_process_set

Splits = Iterable[SupportsIndex] | torch.Tensor | None


def _checked_splits(tensor: torch.Tensor, splits: Splits, call: Call, size: int) -> list[int]:
    call.check_rows(tensor)
    rows = tensor.shape[0]
    if splits is None:
        if rows % size:
            raise call.wrong(f"{rows} rows cannot be divided evenly between {size} ranks; give splits")
        return [rows // size] * size
    if isinstance(splits, torch.Tensor):
        whole = splits.dtype in (torch.int32, torch.int64)
        if splits.dim() != 1 or not whole or splits.device.type == "meta":
            raise call.wrong(
                f"splits is a {splits.dim()}-dimensional {splits.dtype} tensor on {splits.device}, but must "
                "have one dimension, type int32 or int64, and values"
            )
        splits = splits.tolist()
    numbers = _counts(splits, call)
    if len(numbers) != size:
        raise call.wrong(f"splits has {len(numbers)} numbers, but there are {size} ranks")
    if sum(numbers) != rows:
        raise call.wrong(f"splits are {numbers}, {sum(numbers)} in all, but the tensor has {rows} rows")
    return numbers


def _counts(splits: Any, call: Call) -> list[int]:
    """Returns the counts of anything that has them in an order: a list, a tuple, a numpy array."""
    if not isinstance(splits, Iterable) or isinstance(splits, str | bytes | Mapping | Set):
        raise call.wrong(f"splits must be a list of ints or an int tensor, not {type(splits).__name__}")
    try:
        given = list(splits)
        numbers = [operator.index(count) for count in given if not _is_bool(count)]
    except (TypeError, ValueError, RuntimeError) as error:
        raise call.wrong(f"splits are {splits!r}, but must be ints: {error}") from None
    if len(numbers) != len(given) or any(count < 0 for count in numbers):
        raise call.wrong(f"splits are {given}, but must be numbers of rows, from 0 on")
    return numbers


def _is_bool(count: Any) -> bool:
    return isinstance(count, bool) or getattr(count, "dtype", None) == torch.bool


def _call(splits: Splits, name: str | None, process_set: ProcessSet) -> Call:
    if not isinstance(splits, torch.Tensor):
        _core.size()  # Horovod asks first: ValueError before `init`, and not HorovodInternalError
    return Call("alltoall", name, process_set)


def alltoall_async(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts an alltoall; ``synchronize(handle)`` gives the output and, always, the received splits."""
    with _call(splits, name, process_set) as call:
        numbers = _checked_splits(tensor, splits, call, process_set.size())
    handle = _core.alltoall_async(tensor, numbers, name, call.group)
    return remember(handle, lambda outputs: _with_splits(outputs[0], outputs[1], splits))


def _with_splits(
    output: torch.Tensor, received: torch.Tensor, splits: Splits
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the output, and the received splits on the device of a tensor of splits."""
    return output, received.to(splits.device) if isinstance(splits, torch.Tensor) else received


class _Alltoall(torch.autograd.Function):
    """Sends the rows' gradients back to the ranks that the rows came from."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, splits: Splits, name: str | None, process_set: ProcessSet
    ) -> tuple[torch.Tensor, torch.Tensor]:
        with Call("alltoall", name, process_set) as call:
            numbers = _checked_splits(tensor, splits, call, process_set.size())
        output, received = _core.alltoall(tensor, numbers, name, call.group)
        ctx.arguments = (received.tolist(), name, process_set)
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        received, name, process_set = ctx.arguments
        back, _ = recorded(_Alltoall, gradients[0], received, gradient_name(name), process_set)
        return back, None, None, None


@overload
def alltoall(
    tensor: torch.Tensor,
    splits: None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor: ...


@overload
def alltoall(
    tensor: torch.Tensor,
    splits: Iterable[SupportsIndex] | torch.Tensor,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> tuple[torch.Tensor, torch.Tensor]: ...


def alltoall(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Sends the first ``splits[0]`` rows to the set's first rank, the next ``splits[1]`` to its second ...

    Returns the rows that came, in the order of ranks, and, where ``splits`` was given, the number of rows
    from each rank (int32, on the device of a tensor of splits; int64 where a number needs it). Without
    ``splits`` every rank gets the same number. All dimensions but the first are the same on all ranks.
    Differentiable: the gradient is an alltoall of the gradients with the received splits.
    """
    with _call(splits, name, process_set) as call:
        numbers = _checked_splits(tensor, splits, call, process_set.size())
    output, received = recorded(_Alltoall, tensor, numbers, name, process_set)
    return output if splits is None else _with_splits(output, received, splits)
