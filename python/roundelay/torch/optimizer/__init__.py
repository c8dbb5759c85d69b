"""``horovod.torch.optimizer``: DistributedOptimizer, and the class that Horovod makes it of."""

from __future__ import annotations

from roundelay.torch.optimizer.distributed import (
    DistributedOptimizer,
    job_number,
    restart_scopes,
    wrapped,
    wrapper_of,
)
from roundelay.torch.optimizer.horovod_class import _DistributedOptimizer

__all__ = [
    "DistributedOptimizer",
    "_DistributedOptimizer",
    "job_number",
    "restart_scopes",
    "wrapped",
    "wrapper_of",
]
