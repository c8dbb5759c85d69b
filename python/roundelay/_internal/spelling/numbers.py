"""Reads the numbers that strategies are given, as arguments or as text."""

from __future__ import annotations

import math
from typing import Any


def whole_number(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Returns the value. ValueError: it is no whole number from `least` on, or above `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}, but must be a whole number from {least} on")
    if most is not None and value > most:
        raise ValueError(f"{name} is {value}, but must be at most {most}")
    return value


def int_from(key: str, text: str) -> int:
    """Returns the whole number that a text means. ValueError: it means none."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{key} is {text!r}, but must be a whole number") from None


def number_from(key: str, text: str) -> float:
    """Returns the number that a text means. ValueError: it means none."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{key} is {text!r}, but must be a number")
    return number
