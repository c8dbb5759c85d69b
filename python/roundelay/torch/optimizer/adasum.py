"""op=Adasum: every rank takes its own step, then Adasum combines the steps.

One operation reduces the changes of all parameters with Adasum; the result is added to the former parameters.
Gradients and the optimizer's state (momentum ...) stay this rank's own.
"""

from __future__ import annotations

import torch

from roundelay import _core
from roundelay.torch.compression import Compressor
from roundelay.torch.operations import Adasum, Max
from roundelay.torch.operations.common import by_device
from roundelay.torch.process_sets import ProcessSet, set_id


class DeltaSync:
    """Combines the steps of one optimizer. Not thread-safe, as an optimizer's step is not."""

    def __init__(self, scope: int, compression: type[Compressor], process_set: ProcessSet) -> None:
        self._name = "delta" if scope == 0 else f"delta{scope}"
        self._compression = compression
        self._process_set = process_set
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Copies the parameters. Keeps the last copy if a step raised before it ended."""
        if self._before:
            return
        self._before = [
            (parameter, parameter.detach().clone())
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.requires_grad and parameter.is_floating_point()
        ]

    def after_step(self) -> None:
        """Replaces this rank's step by the combined one."""
        before, self._before = self._before, []
        if not before:
            return
        with torch.no_grad():
            deltas = [parameter.detach() - start for parameter, start in before]
            packed = [self._compression.compress(delta) for delta in deltas]
            number = set_id(self._process_set)
            for part, wires in enumerate(by_device((wire, wire) for wire, _ in packed)):
                name = f"{self._name}.part{part}" if part else self._name
                _core.grouped_allreduce(wires, wires, name, Adasum, 1.0, 1.0, number)
            for (parameter, start), (wire, context) in zip(before, packed, strict=True):
                parameter.copy_(start.add_(self._compression.decompress(wire, context)))

    def agree_on_overflow(self, found: dict[torch.device, torch.Tensor]) -> None:
        """Sets GradScaler's findings, by device (not 0: overflow), to the worst of all ranks', in place."""
        device = max(found, key=lambda one: one.type != "cpu")  # on a GPU the host does not wait for them
        findings = [value.reshape(1).to(device, torch.float32) for value in found.values()]
        worst = torch.cat(findings).amax().reshape(1)
        name = f"{self._name}.overflow"
        _core.allreduce(worst, worst, name, Max, 1.0, 1.0, set_id(self._process_set))
        for value in found.values():
            value.copy_(worst.reshape(value.shape))
