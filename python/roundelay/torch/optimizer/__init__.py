"""``horovod.torch.optimizer``: DistributedOptimizer."""

from __future__ import annotations

from roundelay.torch.optimizer.distributed import (
    DistributedOptimizer,
    job_number,
    restart_scopes,
    wrapped,
    wrapper_of,
)

__all__ = ["DistributedOptimizer", "job_number", "restart_scopes", "wrapped", "wrapper_of"]
