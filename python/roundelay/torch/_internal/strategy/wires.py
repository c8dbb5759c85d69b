"""The types that gradients may have while they travel."""

from __future__ import annotations

import torch

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
