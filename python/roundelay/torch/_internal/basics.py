"""Horovod's class behind ``init``, ``rank`` and the like: ``mpi_ops._basics`` is one."""

from __future__ import annotations

from typing import Any

from roundelay.torch import process_sets
from roundelay.torch._internal import global_state, operations


class HorovodBasics:
    """The state of this process in its job, as methods. All objects mean the same job."""

    Average, Sum, Adasum = operations.Average, operations.Sum, operations.Adasum
    Min, Max, Product = operations.Min, operations.Max, operations.Product

    init = staticmethod(global_state.init)
    shutdown = staticmethod(global_state.shutdown)
    is_initialized = staticmethod(global_state.is_initialized)
    rank = staticmethod(global_state.rank)
    size = staticmethod(global_state.size)
    local_rank = staticmethod(global_state.local_rank)
    local_size = staticmethod(global_state.local_size)
    cross_rank = staticmethod(global_state.cross_rank)
    cross_size = staticmethod(global_state.cross_size)
    is_homogeneous = staticmethod(global_state.is_homogeneous)
    start_timeline = staticmethod(global_state.start_timeline)
    stop_timeline = staticmethod(global_state.stop_timeline)
    mpi_threads_supported = staticmethod(global_state.mpi_threads_supported)
    mpi_enabled = staticmethod(global_state.mpi_enabled)
    mpi_built = staticmethod(global_state.mpi_built)
    gloo_enabled = staticmethod(global_state.gloo_enabled)
    gloo_built = staticmethod(global_state.gloo_built)
    nccl_built = staticmethod(global_state.nccl_built)
    ddl_built = staticmethod(global_state.ddl_built)
    ccl_built = staticmethod(global_state.ccl_built)
    cuda_built = staticmethod(global_state.cuda_built)
    rocm_built = staticmethod(global_state.rocm_built)

    def __init__(self, pkg_path: str = "", *args: Any) -> None:
        """Takes what Horovod's takes to find its library, and needs none of it."""

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        """Returns the ranks of all process sets by id."""
        return process_sets.ranks_by_id()
