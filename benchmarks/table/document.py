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
    return "\n".join([where, "", *rows(COLUMNS, [line.cells() for line in lines]), ""])


def rows(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Make the lines of a Markdown table."""
    head, *body = (f"| {' | '.join(cells)} |" for cells in (columns, *lines))
    return [head, f"|{'---|' * len(columns)}", *body]


def with_table(page: str, table: str, begin: str = BEGIN) -> str:
    """Put the table between the page's two marks; ValueError if it has not exactly these."""
    before, found, rest = page.partition(begin)
    _, end, after = rest.partition(END)
    if not found or not end or begin in rest or END in after:
        raise ValueError(f"the page needs one '{begin}' and then one '{END}'")
    return f"{before}{begin}\n{table}{END}{after}"


def write_page(table: str) -> None:
    """Put the table into docs/benchmarks.md."""
    PAGE.write_text(with_table(PAGE.read_text(), table))
