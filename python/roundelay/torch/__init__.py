"""The drop-in for ``horovod.torch``: ``import roundelay.torch as hvd``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from roundelay.errors import HorovodInternalError, NotInThisVersionError
from roundelay.torch import elastic, mpi_ops, strategies
from roundelay.torch._internal.global_state import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from roundelay.torch._internal.measure import stats
from roundelay.torch._internal.mstopk import mstopk
from roundelay.torch._internal.operations import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    join,
    poll,
    reducescatter,
    reducescatter_async,
    sparse_allreduce_async,
    synchronize,
)
from roundelay.torch._internal.optimizer.join_context import join_context
from roundelay.torch._internal.report import report
from roundelay.torch._internal.topology import topology
from roundelay.torch.compiling import compile  # noqa: A004  PyTorch's name
from roundelay.torch.compression import Compression
from roundelay.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from roundelay.torch.optimizer import DistributedOptimizer, _DistributedOptimizer  # noqa: F401  older Horovods
from roundelay.torch.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from roundelay.torch.sync_batch_norm import SyncBatchNorm

if TYPE_CHECKING:
    from roundelay.torch import ddp, optim

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "Max",
    "Min",
    "NotInThisVersionError",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNorm",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
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
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "ccl_built",
    "compile",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "ddp",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "join_context",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_ops",
    "mpi_threads_supported",
    "mstopk",
    "nccl_built",
    "optim",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "report",
    "rocm_built",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "stats",
    "stop_timeline",
    "strategies",
    "synchronize",
    "topology",
]


def __getattr__(name: str) -> object:
    if name in ("ddp", "optim"):
        return importlib.import_module(f"roundelay.torch.{name}")
    raise AttributeError(f"module 'roundelay.torch' has no attribute {name!r}")
