"""Compares the worlds of ``hvd.init()`` and of torch.distributed, where both use Roundelay."""

from __future__ import annotations

import torch.distributed as dist

from roundelay import _core
from roundelay_autoload import NAME


def check_with_process_group() -> None:
    """Called after hvd's init. Raises RuntimeError if the default process group has another rank or size."""
    if not (dist.is_available() and dist.is_initialized() and NAME in dist.get_backend_config()):
        return
    check(dist.get_rank(), dist.get_world_size())


def check(rank: int, size: int) -> None:
    """Compares hvd's world, if there is one, with these. Raises RuntimeError if they differ."""
    if not _core.is_initialized() or (rank, size) == (_core.rank(), _core.size()):
        return
    raise RuntimeError(
        f"this process is rank {_core.rank()} of {_core.size()} in hvd.init(), and rank {rank} of {size} in "
        "init_process_group(): start both from one launcher, with the same ranks"
    )
