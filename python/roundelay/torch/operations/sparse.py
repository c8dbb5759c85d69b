"""allreduce of sparse tensors, such as gradients of embeddings: all ranks' entries are gathered."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache

import torch

from roundelay.errors import HorovodInternalError
from roundelay.torch.operations.allgather import grouped_allgather_async
from roundelay.torch.operations.common import LINEAR_OPS, OP_NAMES, Average, Call, row_of_this_rank
from roundelay.torch.operations.handles import synchronize
from roundelay.torch.process_sets import ProcessSet, global_process_set


def _check(tensor: torch.Tensor, op: int, call: Call) -> None:
    call.check_tensor(tensor)
    if tensor.layout != torch.sparse_coo:
        raise call.wrong(f"a sparse COO tensor is needed, not {tensor.layout}; use allreduce_async")
    if call.checked_reduction([tensor], op) not in LINEAR_OPS:
        raise call.wrong("op must be hvd.Average or hvd.Sum for sparse tensors")


def _check_alike(heads: torch.Tensor, name: str | None) -> None:
    """`heads`: of each rank that has not joined its number, the op and the shape."""
    different = (heads[:, 1:] != heads[0, 1:]).any(1).nonzero()
    if different.numel() == 0:
        return
    theirs = heads[[0, int(different[0])]].tolist()
    if theirs[0][2:] != theirs[1][2:]:
        what, has = "shapes differ", [f"rank {rank} has {shape}" for rank, _, *shape in theirs]
    else:
        what, has = "op differs", [f"rank {rank} has {OP_NAMES[op]}" for rank, op, *_ in theirs]
    of = f" of {name!r}" if name else ""
    raise HorovodInternalError(f"Mismatched sparse allreduce{of}: {what}: {', '.join(has)}")


def _divided(values: torch.Tensor, size: int) -> torch.Tensor:
    return values / size if values.dtype.is_floating_point else values.div(size, rounding_mode="trunc")


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str | None, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Starts the sum (or Average) of sparse COO tensors; call what it returns for the result.

    The result has the entries of all ranks, ``coalesce()`` adds those of one place; Average divides the
    values, on integers truncating. The ranks may have different numbers of entries, also none. Not recorded
    by autograd. ValueError for other ops and for dense tensors; HorovodInternalError on all ranks where
    their ops or their tensors' shapes differ.
    """
    with Call("allgather", name, process_set, shown="sparse allreduce") as call:
        _check(tensor, op, call)
    shape = tensor.shape
    entries = tensor.detach()
    parts = [entries._indices().t(), entries._values()]
    head = [row_of_this_rank(op, *shape)]
    if entries.device.type == "cpu":
        handles = [grouped_allgather_async(parts + head, name, process_set)]
    else:  # nobody waits for the device to read a number
        handles = [
            grouped_allgather_async(parts, name, process_set),
            grouped_allgather_async(head, name and f"{name}.head", process_set),
        ]

    @cache
    def result() -> torch.Tensor:
        gathered = [synchronize(handle) for handle in handles]
        if None in gathered:
            raise RuntimeError(f"handle {handles[0]} was waited for twice")
        indices, values, heads = itertools.chain.from_iterable(gathered)
        _check_alike(heads, name)
        if op == Average:
            values = _divided(values, process_set.size())
        return torch.sparse_coo_tensor(indices.t(), values, shape, check_invariants=False)

    return result
