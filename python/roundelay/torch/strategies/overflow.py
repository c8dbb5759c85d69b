"""GradScaler's findings, for strategies whose gradients are not those of all ranks."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from roundelay import _core
from roundelay.torch.operations import Max
from roundelay.torch.process_sets import ProcessSet, set_id


def agree_on_overflow(found: Mapping[torch.device, torch.Tensor], name: str, process_set: ProcessSet) -> None:
    """Sets the findings (not 0: overflow) to the worst of all ranks': all skip the step, or none does."""
    device = max(found, key=lambda one: one.type != "cpu")  # the host then does not wait for a GPU
    findings = [value.reshape(1).to(device, torch.float32) for value in found.values()]
    worst = torch.cat(findings).amax().reshape(1)
    _core.allreduce(worst, worst, name, Max, 1.0, 1.0, set_id(process_set))
    for value in found.values():
        value.copy_(worst.reshape(value.shape))
