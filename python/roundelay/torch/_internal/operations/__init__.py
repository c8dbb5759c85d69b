"""Collective operations on tensors, also asynchronous, in place and grouped.

Every rank of a process set calls the same operations under the same names; the order may differ. Operations
without a name are numbered, so those must come in the same order everywhere. Errors: ValueError for a wrong
call, MismatchError where ranks disagree (dtype, shape, op, root), HorovodInternalError where a peer failed.
"""

from __future__ import annotations

from roundelay.torch._internal.operations.allgather import (
    allgather,
    allgather_async,
    grouped_allgather,
    grouped_allgather_async,
)
from roundelay.torch._internal.operations.allreduce import (
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
)
from roundelay.torch._internal.operations.alltoall import alltoall, alltoall_async
from roundelay.torch._internal.operations.broadcast import (
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
)
from roundelay.torch._internal.operations.common import (
    LINEAR_OPS,
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    checked_op,
)
from roundelay.torch._internal.operations.grouped import (
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
)
from roundelay.torch._internal.operations.handles import poll, synchronize
from roundelay.torch._internal.operations.join import barrier, join
from roundelay.torch._internal.operations.reducescatter import (
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
from roundelay.torch._internal.operations.sparse import sparse_allreduce_async

__all__ = [
    "LINEAR_OPS",
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Product",
    "Sum",
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "checked_op",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "sparse_allreduce_async",
    "synchronize",
]
