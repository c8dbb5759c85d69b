"""The dense strategy: gradients travel as they are, or cast to a half type."""

from __future__ import annotations

from typing import ClassVar

import torch

from roundelay.torch.strategies.protocol import Strategy

WIRES = {"none": None, "fp16": torch.float16, "bf16": torch.bfloat16}
_NAMES = {dtype: name for name, dtype in WIRES.items()}


def checked_wire(wire: torch.dtype | str | None) -> torch.dtype | None:
    """Returns the type that gradients have on the wire; None: their own. ValueError for other types."""
    found = WIRES.get(wire, wire) if isinstance(wire, str) else wire
    if isinstance(found, torch.dtype | None) and found in _NAMES:
        return found
    raise ValueError(f"wire is {wire!r}, but must be one of {', '.join(WIRES)}")


def wire_text(wire: torch.dtype | None) -> str:
    """Returns the name of a type on the wire."""
    return _NAMES[wire]


class Dense(Strategy):
    """Reduces each bucket by one allreduce.

    wire: the type in which gradients travel: torch.float16, torch.bfloat16, or None for their own.
    """

    counts_steps: ClassVar[bool] = False

    def __init__(self, wire: torch.dtype | str | None = None) -> None:
        self.wire = checked_wire(wire)

    @property
    def text(self) -> str:
        """Returns ``dense`` or ``dense:wire=bf16``."""
        return "dense" if self.wire is None else f"dense:wire={wire_text(self.wire)}"
