"""The types that gradients may have while they travel."""

from __future__ import annotations

import torch

from roundelay._internal.spelling.values import WIRE

_TYPES = {"none": None, "fp16": torch.float16, "bf16": torch.bfloat16}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}


def checked_wire(wire: torch.dtype | str | None) -> torch.dtype | None:
    """Returns the type that gradients have on the wire; None: their own. ValueError for other types."""
    if isinstance(wire, torch.dtype | None) and wire in _NAMES:
        return wire
    return _TYPES[WIRE.checked("wire", wire)]


def wire_text(wire: torch.dtype | None) -> str:
    """Returns the name of a type on the wire."""
    return _NAMES[wire]
