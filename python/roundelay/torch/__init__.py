"""The drop-in for ``horovod.torch``: ``import roundelay.torch as hvd``."""

from __future__ import annotations

import torch as _torch  # noqa: F401  the core links to torch's libraries: they must be loaded first

from roundelay.errors import HorovodInternalError, NotInThisVersionError
from roundelay.torch.compression import Compression
from roundelay.torch.functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters
from roundelay.torch.life import (
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
from roundelay.torch.measure import stats
from roundelay.torch.operations import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    poll,
    synchronize,
)
from roundelay.torch.optimizer import DistributedOptimizer
from roundelay.torch.process_sets import ProcessSet, global_process_set

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
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stats",
    "stop_timeline",
    "synchronize",
]

_LATER = {
    *("allgather", "allgather_async", "grouped_allgather", "grouped_allgather_async", "allgather_object"),
    *("alltoall", "alltoall_async", "reducescatter", "reducescatter_async", "join", "sparse_allreduce_async"),
    *("grouped_reducescatter", "grouped_reducescatter_async", "grouped_allreduce", "grouped_allreduce_async"),
    *("grouped_allreduce_", "grouped_allreduce_async_", "add_process_set", "remove_process_set"),
    *("SyncBatchNorm", "elastic", "run"),
}


def __getattr__(name: str) -> object:
    if name in _LATER:
        raise NotInThisVersionError(f"hvd.{name} is not in this version of Roundelay yet")
    raise AttributeError(f"module 'roundelay.torch' has no attribute {name!r}")
