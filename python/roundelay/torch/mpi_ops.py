"""Every name of ``horovod.torch.mpi_ops``: operations, handles, init, shutdown, ranks, process sets."""

# ruff: noqa: F401, F403  this module only re-exports names

from __future__ import annotations

from roundelay._internal import gpu
from roundelay.errors import HorovodInternalError
from roundelay.torch._internal.basics import HorovodBasics as _HorovodBasics
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
from roundelay.torch._internal.operations import *
from roundelay.torch.compression import Compression
from roundelay.torch.process_sets import *

_basics = _HorovodBasics()


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Returns whether this process sees a GPU; False for a framework other than ``torch``."""
    return ext_base_name == "torch" and gpu.is_available()


def num_rank_is_power_2(num_rank: int) -> bool:
    """Returns whether the number is a power of two, which 0 is not."""
    return num_rank > 0 and num_rank.bit_count() == 1
