"""Finds the DDP module that calls a hook: neither PyTorch nor its user tells the hook."""

from __future__ import annotations

import gc

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def check_group(state: object, group: dist.ProcessGroup) -> None:
    """Raises ValueError if a module with this state in a hook averages over another group than this."""
    for one in gc.get_objects():
        if not issubclass(type(one), DistributedDataParallel):
            continue
        hooks = getattr(one, "_comm_hooks", ())
        if any(theirs is state for _, theirs in hooks) and one.process_group is not group:
            raise ValueError(
                "the hook's process_group is not that of DistributedDataParallel: give both the same"
            )
