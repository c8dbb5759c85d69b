"""The effective configuration: ``print(roundelay.config)`` shows it, ``roundelay.config.theta`` reads it.

Before ``init`` it shows what ``init`` would read from the environment now; afterwards what it did read.
The attributes are those of ``_core.Config``. Sizes are in bytes and times in seconds, ``cycle_time`` too (its
variable has milliseconds). A bad value raises ValueError naming the variable.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from roundelay import _core


def effective() -> _core.Config:
    """Returns the typed configuration object (read-only)."""
    return _core.config() if _core.is_initialized() else _core.load_config()


def table() -> str:
    """Returns a line for each knob (variable, value, source, meaning), then the variables without effect."""
    config = effective()
    rows = [("variable", "value", "source", "meaning"), *config.lines]
    widths = [max(len(str(row[column])) for row in rows) for column in range(3)]
    lines = [
        "  ".join(
            [*(str(cell).ljust(width) for cell, width in zip(row[:3], widths, strict=True)), str(row[3])]
        )
        for row in rows
    ]
    return "\n".join([*lines, *(f"no effect: {text}" for text in config.no_effect)])


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(effective(), name)


class _PrintableModule(ModuleType):
    def __str__(self) -> str:
        return table()


sys.modules[__name__].__class__ = _PrintableModule
