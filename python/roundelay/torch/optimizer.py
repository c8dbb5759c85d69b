"""``horovod.torch.optimizer``: DistributedOptimizer, and the class that Horovod makes it of."""

from __future__ import annotations

from roundelay.torch._internal.optimizer.distributed import DistributedOptimizer
from roundelay.torch._internal.optimizer.horovod_class import _DistributedOptimizer

__all__ = ["DistributedOptimizer", "_DistributedOptimizer"]
