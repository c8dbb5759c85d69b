"""Writes the results into the pages of GradientFlow, of top-k and of PowerSGD."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import show
from benchmarks.gradientflow.result import Row, Wire, from_json, wire_seconds
from benchmarks.table.markdown import rows, with_table
from benchmarks.table.result import Estimate

_DOCS = Path(__file__).resolve().parents[2] / "docs"


class Page(NamedTuple):
    """A page with results, where these are stored, and their picture.

    `twins` is another page, which has those of the results whose contender is a hook of DDP, too.
    """

    text: Path
    stored: Path
    picture: Path
    twins: Path | None = None


def _page(name: str, results: str, twins: str | None = None) -> Page:
    techniques = _DOCS / "techniques"
    return Page(
        techniques / f"{name}.md",
        techniques / f"{results}.json",
        _DOCS / "images" / f"{results}.png",
        techniques / f"{twins}.md" if twins else None,
    )


PAGES = {
    "gradientflow": _page("gradientflow", "gradientflow"),
    "topk": _page("topk", "topk_steps", "powersgd"),
}
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
TWIN_COLUMNS = ("strategy", "step", "with DDP's hook", "ratio", "loss", "with DDP's hook")
_OF_DDP = "DDP, "
_PROSE_COLUMNS = 110


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


def tables(stored: Mapping[str, Any]) -> str:
    """Make a page's tables, one for each wire."""
    machine = stored["machine"]
    where = (
        f"{machine['cores']} cores of an {machine['cpu']}, torch {machine['torch']}, {machine['mpi']}, "
        f"Python {machine['python']}, one thread a rank, {stored['day']}."
    )
    dense = ", ".join(f"{count} of {name}" for name, count in stored["dense_steps"].items())
    lines = [_filled(f"{where} The first steps are dense and not measured: {dense}."), ""]
    for wire in wires(stored):
        made = rows(COLUMNS, [cells(row, wire.mbit) for row in wire.rows])
        lines += [_filled(f"**{title(wire)}.** {disturbed(wire)}"), "", *made, ""]
    return "\n".join(lines)


def twins(stored: Mapping[str, Any]) -> str:
    """Make the table of the contenders that DDP has as a hook of the same name, on the slowest wire."""
    wire = wires(stored)[0]
    of_ddp = {row.name.removeprefix(_OF_DDP): row for row in wire.rows if row.name.startswith(_OF_DDP)}
    lines = []
    for own in wire.rows:
        if own.name in of_ddp:
            pair = own, of_ddp[own.name]
            steps = [one.step.value for one in pair]
            times = [show.seconds_text(step) for step in steps]
            losses = [f"{one.loss:.3f}" for one in pair]
            lines.append([own.name, *times, f"{steps[0] / steps[1]:.2f}", *losses])
    return "\n".join([f"{title(wire)}.", "", *rows(TWIN_COLUMNS, lines), ""])


def _filled(prose: str) -> str:
    return textwrap.fill(prose, _PROSE_COLUMNS, break_long_words=False, break_on_hyphens=False)


def wires(stored: Mapping[str, Any]) -> Sequence[Wire]:
    """List the stored results, the slowest wire first."""
    return sorted(map(from_json, stored["wires"]), key=lambda wire: wire.mbit)


def read(page: Page) -> dict[str, Any]:
    """Read the latest results."""
    found: dict[str, Any] = json.loads(page.stored.read_text())
    return found


def write_page(page: Page, stored: Mapping[str, Any]) -> None:
    """Put the tables into the page, and the twins into theirs."""
    page.text.write_text(with_table(page.text.read_text(), tables(stored), BEGIN))
    if page.twins:
        page.twins.write_text(with_table(page.twins.read_text(), twins(stored), BEGIN))
