"""The loss of a closure, where the optimizer decides by it: all ranks need the same one."""

from __future__ import annotations

from typing import Any

import torch

from roundelay.torch._internal.operations import LINEAR_OPS, allreduce
from roundelay.torch._internal.optimizer.batch_weight import own_weight
from roundelay.torch.process_sets import ProcessSet


def agreed_loss(optimizer: Any, loss: Any, op: int, process_set: ProcessSet, prefix: str) -> Any:
    """Returns the loss of all ranks, reduced as their gradients are, for LBFGS; this rank's for others.

    LBFGS compares losses in its line search, and stops where one hardly changes. op, process_set: those of
    the gradients. prefix: that of the optimizer's names.
    """
    decides = isinstance(optimizer, torch.optim.LBFGS)
    if not decides or op not in LINEAR_OPS or not process_set.included():
        return loss
    is_tensor = isinstance(loss, torch.Tensor)
    own = loss.detach() if is_tensor else torch.tensor(float(loss), dtype=torch.float64, device="cpu")
    reduced = allreduce(
        own,
        op=op,
        name=f"{prefix}.closure.loss",
        process_set=process_set,
        weight=own_weight(optimizer),
    )
    return reduced.detach() if is_tensor else reduced.item()
