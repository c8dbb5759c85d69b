"""GradScaler's results, for strategies whose gradients differ between ranks."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from roundelay import _core
from roundelay.torch._internal.operations import Max
from roundelay.torch.process_sets import ProcessSet, set_id


def agree_on_overflow(found: Mapping[torch.device, torch.Tensor], name: str, process_set: ProcessSet) -> None:
    """Sets `found` (0: no overflow) to the largest value of all ranks, so that all skip the step or none."""
    device = max(found, key=lambda one: one.type != "cpu")  # the host then does not wait for a GPU
    findings = [value.reshape(1).to(device, torch.float32) for value in found.values()]
    worst = torch.cat(findings).amax().reshape(1)
    _core.allreduce(worst, worst, name, Max, 1.0, 1.0, set_id(process_set))
    for value in found.values():
        value.copy_(worst.reshape(value.shape))
