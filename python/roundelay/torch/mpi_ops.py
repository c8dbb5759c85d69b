"""Everything that ``horovod.torch.mpi_ops`` has: operations, handles, life, ranks, process sets."""

# ruff: noqa: F401, F403  it only passes names on

from __future__ import annotations

from roundelay import _gpu
from roundelay.errors import HorovodInternalError
from roundelay.torch.compression import Compression
from roundelay.torch.global_state import (
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
from roundelay.torch.operations import *
from roundelay.torch.process_sets import *


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether this process sees a GPU; for a framework that is not ``torch`` False."""
    return ext_base_name == "torch" and _gpu.is_available()


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether the number is a power of two; 0 is none."""
    return num_rank > 0 and num_rank.bit_count() == 1
