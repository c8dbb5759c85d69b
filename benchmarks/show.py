"""Formats measurements: sizes, ratios, tables, files."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.row_json import as_rows

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
SHORT = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def parse_size(text: str) -> int:
    """Turn "256", "64K" or "100M" into bytes.

    Raises:
        ValueError: the text has another form, or means 0.

    """
    match = re.fullmatch(r"(\d+)\s*([KM]?)(i?B)?", text.strip(), re.IGNORECASE)
    if not match or int(match[1]) == 0:
        raise ValueError(f"'{text}' is no size like 256, 64K or 100M")
    return int(match[1]) * _UNITS[match[2].upper()]


def size_text(size: int) -> str:
    """Format bytes in binary units, without decimals if the number is even."""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} B"


def seconds_text(seconds: float) -> str:
    """Format with three digits."""
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if abs(seconds) < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def quantity(value: float, unit: str) -> str:
    """Format with a unit: "x" (a ratio), "s", "B", "%", or "" (a count)."""
    if unit == "s":
        return seconds_text(value)
    if unit == "B":
        return size_text(round(value))
    return f"{value:.3g}" + (f" {unit}" if unit == "%" else unit)


def interval(low: float | None, high: float | None, unit: str) -> str:
    """Format the bounds of a 95 % interval, to follow a value; "" if there are none."""
    if low is None and high is None:
        return ""
    bounds = ("?" if bound is None else quantity(bound, unit) for bound in (low, high))
    return f" ({' to '.join(bounds)})"


def ratio(seconds: dict[str, dict[str, float]], peer: str) -> float | None:
    """Return how many times as long as Roundelay the peer takes; None if it was not measured."""
    if peer not in seconds:
        return None
    return seconds[peer]["median"] / seconds["roundelay"]["median"]


def ratio_text(value: float | None) -> str:
    """Format a ratio; a dash if there is none."""
    return "-" if value is None else f"{value:.2f}x"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 0) -> Table:
    """Make a table. The first `texts` columns are text that may wrap; the others are numbers."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        if index < texts:
            made.add_column(column, overflow="fold")
        else:
            made.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    return made


def console() -> Console:
    """Make the terminal's console, or a wide one for files."""
    made = Console()
    return made if made.is_terminal else Console(width=140)


def save(path: Path, found: dict[str, Any]) -> None:
    """Write a result as JSON, with the command that made it."""
    found = {"command": ["python", "-m", *_module_and_arguments()], **found}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_rows(found) + "\n")
    print(f"wrote {path}")


def _module_and_arguments() -> list[str]:
    *folders, name = Path(sys.argv[0]).with_suffix("").parts
    inner = folders[len(folders) - folders[::-1].index("benchmarks") :] if "benchmarks" in folders else []
    module = ["benchmarks", *inner, *([] if name == "__main__" else [name])]
    return [".".join(module), *sys.argv[1:]]
