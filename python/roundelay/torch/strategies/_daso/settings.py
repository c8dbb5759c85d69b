"""DASO's settings, and its text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from roundelay.torch._internal.strategy.spec import Spec, Value
from roundelay.torch._internal.strategy.wires import wire_text
from roundelay.torch.strategies._daso.skips import Skips
from roundelay.torch.strategies._shared.numbers import int_from

NUMBERS = (
    "global_skip",
    "batches_to_wait",
    "local_skip",
    "warmup_epochs",
    "cooldown_epochs",
    "total_epochs",
    "batches_per_epoch",
)
KEYS = (*NUMBERS, "blocking_wire", "merge_momentum")
_DEFAULTS = (4, 1, 1, 4, 4)  # the defaults of the first five numbers


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
        given = (start.global_skip, start.batches_to_wait, start.local_skip, *self.epochs[:2])
        settings: dict[str, Value] = {"global_skip": start.global_skip}
        settings |= {
            key: value
            for key, value, default in zip(NUMBERS, given, _DEFAULTS, strict=False)
            if value != default
        }
        settings["total_epochs"] = self.epochs[2]
        if self.batches_per_epoch is not None:
            settings["batches_per_epoch"] = self.batches_per_epoch
        if self.blocking_wire != torch.bfloat16:
            settings["blocking_wire"] = wire_text(self.blocking_wire)
        if self.merge_momentum:
            settings["merge_momentum"] = True
        return Spec(kind, **settings).text


def arguments_from_texts(given: Mapping[str, str]) -> dict[str, Any]:
    """Returns the arguments that a text gives. ValueError: one is wrong."""
    if "total_epochs" not in given:
        raise ValueError("strategy 'daso' needs total_epochs, the number of epochs of the whole training")
    arguments: dict[str, Any] = {key: int_from(key, given[key]) for key in NUMBERS if key in given}
    if "blocking_wire" in given:
        arguments["blocking_wire"] = given["blocking_wire"]
    if "merge_momentum" in given:
        arguments["merge_momentum"] = bool(int_from("merge_momentum", given["merge_momentum"]))
    return arguments
