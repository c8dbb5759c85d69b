"""The table as Markdown, and its place in docs/benchmarks.md. Pure, but for writing the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.table.line import COLUMNS, Line

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
PICTURE = PAGE.parent / "images" / "table.png"
BEGIN, END = "<!-- python -m benchmarks.table --docs writes from here -->", "<!-- to here -->"


def markdown(lines: Sequence[Line], machine: Mapping[str, Any], day: str) -> str:
    """Make the table, with what it was measured on above it."""
    where = (
        f"{machine['cores']} cores of an {machine['cpu']}, torch {machine['torch']}, {machine['mpi']}, "
        f"Python {machine['python']}, one thread a rank, {day}."
    )
    head, *rows = (f"| {' | '.join(cells)} |" for cells in (COLUMNS, *(line.cells() for line in lines)))
    return "\n".join([where, "", head, f"|{'---|' * len(COLUMNS)}", *rows, ""])


def with_table(page: str, table: str) -> str:
    """Put the table between the page's two marks; ValueError if it has not exactly these."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise ValueError(f"the page needs one '{BEGIN}' and then one '{END}'")
    return f"{before}{BEGIN}\n{table}{END}{after}"


def write_page(table: str) -> None:
    """Put the table into docs/benchmarks.md."""
    PAGE.write_text(with_table(PAGE.read_text(), table))
