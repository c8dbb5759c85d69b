"""op=Adasum: every rank takes its own step, then Adasum combines the steps.

One operation reduces the changes of all parameters with Adasum; the result is added to the former parameters.
Gradients and the optimizer's state (momentum ...) stay this rank's own.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from roundelay import _core
from roundelay._internal.spelling.reading import write
from roundelay.torch._internal import operations
from roundelay.torch._internal.operations import Average
from roundelay.torch._internal.operations.common import by_device
from roundelay.torch._internal.parameter_names import in_canonical_order
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch._internal.strategy.wires import checked_wire, wire_text
from roundelay.torch.process_sets import set_id
from roundelay.torch.strategies._averaging.base import is_stepped
from roundelay.torch.strategies._shared.overflow import agree_on_overflow


class Adasum(Strategy):
    """Combines the ranks' steps instead of their gradients. wire: the type in which steps travel, as Dense's.

    Not thread-safe, as an optimizer's step is not.
    """

    reduces_gradients: ClassVar[bool] = False
    takes_complex: ClassVar[bool] = False

    def __init__(self, wire: torch.dtype | str | None = None) -> None:
        self.wire = checked_wire(wire)
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []

    @property
    def text(self) -> str:
        """Returns ``adasum`` or ``adasum:wire=bf16``."""
        return write("adasum", {"wire": wire_text(self.wire)})

    def accept(self, optimizer: torch.optim.Optimizer, op: int) -> None:
        """Refuses an op that was given and is not Adasum."""
        if op not in (Average, operations.Adasum):
            raise ValueError("strategy adasum is op=hvd.Adasum: give no other op with it")

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Copies the parameters. After a step that raised they may be others, as from a checkpoint.

        MismatchError, on all ranks and with nothing changed: their steps would be of other parameters.
        """
        named = {
            name: parameter
            for name, parameter in in_canonical_order(optimizer).items()
            if is_stepped(parameter) and (parameter.is_floating_point() or parameter.is_complex())
        }
        self.context.check_step(named)
        self._before = [(parameter, parameter.detach().clone()) for parameter in named.values()]

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Replaces this rank's step by the combined one."""
        before, self._before = self._before, []
        if not before:
            return
        name, compression = self.context.name("delta"), self.context.compression
        number = set_id(self.context.process_set)
        with torch.no_grad():
            deltas = [parameter.detach() - start for parameter, start in before]
            packed = [compression.compress(delta) for delta in deltas]
            for part, wires in enumerate(by_device((wire, wire) for wire, _ in packed)):
                named = f"{name}.part{part}" if part else name
                _core.grouped_allreduce(wires, wires, named, operations.Adasum, 1.0, 1.0, number)
            for (parameter, start), (wire, cast) in zip(before, packed, strict=True):
                parameter.copy_(start.add_(compression.decompress(wire, cast)))

    def agree_on_overflow(self, found: dict[torch.device, torch.Tensor]) -> None:
        """Sets GradScaler's findings to the worst of all ranks'."""
        agree_on_overflow(found, f"{self.context.name('delta')}.overflow", self.context.process_set)
