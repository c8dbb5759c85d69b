"""Strategies in DistributedDataParallel: hooks for its gradients, over the backend "roundelay".

``model.register_comm_hook(*roundelay.torch.ddp.hook("topk:density=0.01"))``
"""

from __future__ import annotations

from roundelay.torch.ddp._hook.hook_state import HookState
from roundelay.torch.ddp.hooks import hook

__all__ = ["HookState", "hook"]
