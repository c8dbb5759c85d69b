"""Writes the results into the pages of GradientFlow and of top-k."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import show
from benchmarks.gradientflow.result import Row, Wire, from_json, wire_seconds
from benchmarks.table.markdown import rows, with_table
from benchmarks.table.result import Estimate

_DOCS = Path(__file__).resolve().parents[2] / "docs"
STORED = _DOCS / "techniques" / "gradientflow.json"
PAGE = _DOCS / "techniques" / "gradientflow.md"
TOP_K_PAGE = _DOCS / "techniques" / "topk.md"
PICTURE = _DOCS / "images" / "gradientflow.png"
BEGIN = "<!-- python -m benchmarks.gradientflow --docs writes from here -->"

COLUMNS = (
    "2 nodes of 2 ranks",
    "step",
    "exposed",
    "speed by DDP's",
    "a node sends",
    "it must send",
    "ratio",
    "the wire needs",
    "loss",
)
_PROSE_COLUMNS = 110
_NOT_LOSSY = ("no communication", "lazy allreduce", "lazy allreduce, bf16", "DDP", "DDP, fp16 hook")
_LOSSY = ("CSC", "top-k", "PowerSGD", "DDP, PowerSGD")  # beginnings of names


def cells(row: Row, mbit: int) -> list[str]:
    """Make the texts of a contender's columns."""
    times = [(row.step, "s"), (row.exposed, "s"), (row.ratio, "x")]
    own = [row.name, *("" if value is None else _estimate(value, unit) for value, unit in times)]
    if row.loss is None:
        return [*own, "", "", "", "", ""]
    wire = show.seconds_text(wire_seconds(row.least, mbit))
    bytes_ = [show.quantity(value, "B") for value in (row.sent, row.least)]
    return [*own, *bytes_, f"{row.sent / row.least:.3f}x", wire, f"{row.loss:.3f}"]


def _estimate(value: Estimate, unit: str) -> str:
    return show.quantity(value.value, unit) + show.interval(value.low, value.high, unit)


def title(wire: Wire) -> str:
    """Say what was measured."""
    return f"{wire.mbit} Mbit/s, {wire.steps} steps, median of {wire.counted}"


def disturbed(wire: Wire) -> str:
    """Say in how many repetitions other processes ran, and what follows."""
    said = f"Other processes ran in {wire.disturbed} of {wire.repetitions} repetitions"
    if wire.counted > wire.repetitions - wire.disturbed:
        return f"{said}, too many to leave these out: times are upper bounds."
    return f"{said}, which do not count."


def of_top_k(row: Row) -> bool:
    """Return whether the page of top-k shows the row: what sends less, and what it is compared with."""
    return row.name in _NOT_LOSSY or row.name.startswith(_LOSSY)


def tables(stored: Mapping[str, Any], shown: Callable[[Row], bool] = lambda _: True) -> str:
    """Make a page's tables, one for each wire."""
    machine = stored["machine"]
    where = (
        f"{machine['cores']} cores of an {machine['cpu']}, torch {machine['torch']}, {machine['mpi']}, "
        f"Python {machine['python']}, one thread a rank, {stored['day']}."
    )
    dense = ", ".join(f"{count} of {name}" for name, count in stored["dense_steps"].items())
    lines = [_filled(f"{where} The first steps are dense and not measured: {dense}."), ""]
    for wire in wires(stored):
        made = rows(COLUMNS, [cells(row, wire.mbit) for row in wire.rows if shown(row)])
        lines += [_filled(f"**{title(wire)}.** {disturbed(wire)}"), "", *made, ""]
    return "\n".join(lines)


def _filled(prose: str) -> str:
    return textwrap.fill(prose, _PROSE_COLUMNS, break_long_words=False, break_on_hyphens=False)


def wires(stored: Mapping[str, Any]) -> Sequence[Wire]:
    """List the stored results, the slowest wire first."""
    return sorted(map(from_json, stored["wires"]), key=lambda wire: wire.mbit)


def read() -> dict[str, Any]:
    """Read the latest results."""
    found: dict[str, Any] = json.loads(STORED.read_text())
    return found


def write_pages(stored: Mapping[str, Any]) -> None:
    """Put the tables into the pages."""
    PAGE.write_text(with_table(PAGE.read_text(), tables(stored), BEGIN))
    TOP_K_PAGE.write_text(with_table(TOP_K_PAGE.read_text(), tables(stored, of_top_k), BEGIN))
