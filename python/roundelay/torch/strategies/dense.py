"""The dense strategy: gradients travel as they are, or cast to a half type."""

from __future__ import annotations

from typing import ClassVar

import torch

from roundelay._internal.spelling.reading import write
from roundelay.torch._internal.strategy.strategy import Strategy
from roundelay.torch._internal.strategy.wires import checked_wire, wire_text


class Dense(Strategy):
    """Reduces each bucket by one allreduce.

    wire: the type in which gradients travel: torch.float16, torch.bfloat16, or None for their own.
    """

    counts_steps: ClassVar[bool] = False
    takes_weight = True

    def __init__(self, wire: torch.dtype | str | None = None) -> None:
        self.wire = checked_wire(wire)

    @property
    def text(self) -> str:
        """Returns ``dense`` or ``dense:wire=bf16``."""
        return write("dense", {"wire": wire_text(self.wire)})
