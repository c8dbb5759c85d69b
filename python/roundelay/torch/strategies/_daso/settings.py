"""DASO's settings, and its text."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from roundelay._internal.spelling.reading import write
from roundelay.torch._internal.strategy.wires import wire_text
from roundelay.torch.strategies._daso.skips import Skips

_NUMBERS = (
    "global_skip",
    "batches_to_wait",
    "local_skip",
    "warmup_epochs",
    "cooldown_epochs",
    "total_epochs",
    "batches_per_epoch",
)


@dataclass(frozen=True)
class Settings:
    """DASO's arguments, after the checks."""

    start: Skips
    epochs: tuple[int, int, int]  # the numbers of epochs of the warm-up, of the cool-down, and of all
    batches_per_epoch: int | None
    blocking_wire: torch.dtype | None
    merge_momentum: bool

    def text(self, kind: str) -> str:
        """Returns these two, and what is not the default: ``daso:global_skip=4,total_epochs=90``."""
        start = self.start
        skips = (start.global_skip, start.batches_to_wait, start.local_skip)
        given = (*skips, *self.epochs, self.batches_per_epoch)
        settings = {
            **dict(zip(_NUMBERS, given, strict=True)),
            "blocking_wire": wire_text(self.blocking_wire),
            "merge_momentum": self.merge_momentum,
        }
        return write(kind, settings)
