"""allreduce of sparse tensors, such as gradients of embeddings: gathers all ranks' entries."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from functools import cache

import torch

from roundelay.errors import MismatchError
from roundelay.torch._internal.operations.allgather import grouped_allgather_async
from roundelay.torch._internal.operations.common import LINEAR_OPS, OP_NAMES, Average, Call, row_of_this_rank
from roundelay.torch._internal.operations.handles import synchronize
from roundelay.torch.process_sets import ProcessSet, global_process_set


def _check(tensor: torch.Tensor, op: int, call: Call) -> None:
    call.check_tensor(tensor)
    if tensor.layout != torch.sparse_coo:
        raise call.wrong(f"a sparse COO tensor is needed, not {tensor.layout}; use allreduce_async")
    if call.checked_op([tensor], op) not in LINEAR_OPS:
        raise call.wrong("op must be hvd.Average or hvd.Sum for sparse tensors")


def _check_alike(heads: torch.Tensor, name: str | None) -> None:
    """Raises MismatchError if ops or shapes differ. heads: a row (rank, op, shape) for each rank."""
    different = (heads[:, 1:] != heads[0, 1:]).any(1).nonzero()
    if different.numel() == 0:
        return
    theirs = heads[[0, int(different[0])]].tolist()
    if theirs[0][2:] != theirs[1][2:]:
        what, has = "shapes differ", [f"rank {rank} has {shape}" for rank, _, *shape in theirs]
    else:
        what, has = "op differs", [f"rank {rank} has {OP_NAMES[op]}" for rank, op, *_ in theirs]
    of = f" of {name!r}" if name else ""
    raise MismatchError(f"Mismatched sparse allreduce{of}: {what}: {', '.join(has)}")


def _witness(op: int, shape: torch.Size, device: torch.device) -> torch.Tensor:
    """Returns an empty tensor whose own shape encodes op and shape.

    The core compares shapes on the host, so ranks that differ get an error without a wait for the GPU.
    """
    fits = math.prod(shape) < 2**40  # the strides must fit into 64 bits
    says = shape if fits else [zlib.crc32(repr(shape).encode())]
    return torch.empty((0, op + 1, *says), dtype=torch.uint8, device=device)


def _divided(values: torch.Tensor, size: int) -> torch.Tensor:
    whole = not (values.is_floating_point() or values.is_complex())
    return values.div(size, rounding_mode="trunc") if whole else values / size


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str | None, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Starts the sum (or Average) of sparse COO tensors. Returns a function that waits for the result.

    The result has the entries of all ranks; ``coalesce()`` adds entries with equal indices. Average divides
    the values, on integers truncating. The ranks may have different numbers of entries, also none. Autograd
    does not record this. ValueError for other ops and for dense tensors; MismatchError on all ranks where
    their ops or their tensors' shapes differ.
    """
    with Call("allgather", name, process_set, shown="sparse allreduce") as call:
        _check(tensor, op, call)
    shape = tensor.shape
    entries = tensor.detach()
    on_cpu = entries.device.type == "cpu"
    third = row_of_this_rank(op, *shape) if on_cpu else _witness(op, shape, entries.device)
    handle = grouped_allgather_async([entries._indices().t(), entries._values(), third], name, process_set)

    @cache
    def result() -> torch.Tensor:
        gathered = synchronize(handle)
        if gathered is None:
            raise RuntimeError(f"handle {handle} was waited for twice")
        indices, values, thirds = gathered
        if on_cpu:
            _check_alike(thirds, name)
        if op == Average:
            values = _divided(values, process_set.size())
        return torch.sparse_coo_tensor(indices.t(), values, shape, check_invariants=False)

    return result
