"""Quantities as users write them, and as tables show them."""

from __future__ import annotations

import datetime
import math
import re

_QUANTITY = re.compile(r"([0-9.eE+-]+)\s*([A-Za-z/]*)")
_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_AS_TC = {"m": 1e6, "g": 1e9, "t": 1e12}  # nobody means a thousandth of a bit
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


class PlanError(ValueError):
    """A prediction is impossible; the text is one line with the cause and the cure."""


def _split(text: str, example: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text.strip())
    try:
        number = float(match.group(1)) if match else math.nan
    except ValueError:
        number = math.nan
    if match is None or not math.isfinite(number):
        raise PlanError(f"{text!r} is no quantity: write it like {example}")
    return number, match.group(2)


def seconds(text: str, *, zero: bool = False) -> float:
    """Read a time with its unit: ``0.12s``, ``30us``. PlanError: another form, or it is not positive."""
    number, unit = _split(text, "0.12s or 30us")
    if unit not in _SECONDS:
        raise PlanError(f"{text!r} has no unit of time: write s, ms, us or ns, as in 0.12s")
    return _positive(number * _SECONDS[unit], text, zero)


def bandwidth(text: str) -> float:
    """Read bytes a second: ``10Gbit``, ``100mbit``, ``1.2GB/s``. PlanError: another form, or not positive."""
    number, unit = _split(text, "10Gbit or 1.2GB/s")
    unit = unit.removesuffix("/s").removesuffix("ps")
    for name, factor in (("bit", 1 / 8), ("B", 1.0)):
        prefix = unit.removesuffix(name)
        scale = {**_PREFIXES, **_AS_TC, **_BINARY}.get(prefix)
        if prefix != unit and scale is not None:
            return _positive(number * scale * factor, text)
    raise PlanError(f"{text!r} has no unit of bandwidth: write it like 10Gbit, 300Gbit/s or 1.2GB/s")


def size(text: str) -> float:
    """Read bytes: ``64KiB``, ``25MB``. PlanError: another form, or it is not positive."""
    value, unit = _split(text, "64KiB or 25MB")
    prefix = unit.removesuffix("B")
    scale = {**_PREFIXES, **_BINARY}.get(prefix)
    if prefix == unit or scale is None:
        raise PlanError(f"{text!r} has no unit of bytes: write it like 64KiB or 25MB")
    return _positive(value * scale, text)


def flops(text: str) -> float:
    """Read operations a second: ``12Tflop/s``, ``12T``. PlanError: another form, or it is not positive."""
    value, unit = _split(text, "12Tflop/s")
    scale = _PREFIXES.get(unit.removesuffix("/s").removesuffix("s").removesuffix("flop"))
    if scale is None:
        raise PlanError(f"{text!r} has no unit of arithmetic: write it like 12Tflop/s")
    return _positive(value * scale, text)


def count(text: str) -> int:
    """Read a positive whole number. PlanError: it is none."""
    try:
        number = int(text)
    except ValueError:
        raise PlanError(f"{text!r} is no whole number") from None
    return int(_positive(number, text))


def number(text: str) -> float:
    """Read a positive number, such as a price. PlanError: it is none."""
    value, unit = _split(text, "12.5")
    if unit:
        raise PlanError(f"{text!r} has a unit, where a plain number is wanted")
    return _positive(value, text)


def _positive(value: float, text: str, zero: bool = False) -> float:
    if value < 0 or (value == 0 and not zero):
        raise PlanError(f"{text!r} must be {'at least' if zero else 'more than'} 0")
    return value


def _below(value: float, limit: float) -> bool:
    """Tell whether a value is below a limit when it has three digits."""
    return float(f"{value:.3g}") < limit


def time_text(value: float) -> str:
    """Format seconds with three digits."""
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if _below(value, limit):
            return f"{value * factor:.3g} {unit}"
    return f"{value:.3g} s" if value < 100 else f"{value:.0f} s"


def bytes_text(value: float) -> str:
    """Format bytes in decimal units, as links have them."""
    for limit, factor, unit in ((1e3, 1.0, "B"), (1e6, 1e-3, "kB"), (1e9, 1e-6, "MB")):
        if _below(value, limit):
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e-9:.3g} GB"


def bandwidth_text(value: float) -> str:
    """Format a bandwidth in bits."""
    bits = 8 * value
    for limit, factor, unit in ((1e9, 1e-6, "Mbit/s"), (math.inf, 1e-9, "Gbit/s")):
        if _below(bits, limit):
            return f"{bits * factor:.3g} {unit}"
    return "any"


def age_text(moment: datetime.datetime) -> str:
    """Return a text that tells a moment, and how long ago that is."""
    days = (datetime.datetime.now(datetime.timezone.utc) - moment).total_seconds() / 86400
    ago = f"{days:.0f} days" if days >= 1 else f"{max(0.0, days * 24):.1f} hours"
    return f"{moment.astimezone(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, {ago} old"


def date_text(date: str) -> str:
    """Return a file's date with its age; a date of another form than ISO 8601 stays as it is."""
    try:
        moment = datetime.datetime.fromisoformat(date)
    except ValueError:
        return date
    utc = datetime.timezone.utc
    return age_text(moment if moment.tzinfo is not None else moment.replace(tzinfo=utc))
