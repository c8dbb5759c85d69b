"""Makes tables in Markdown, and puts them between two marks of a page. Pure."""

from __future__ import annotations

from collections.abc import Sequence

BEGIN, END = "<!-- python -m benchmarks.table --docs writes from here -->", "<!-- to here -->"


def rows(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Make the lines of a Markdown table."""
    head, *body = (f"| {' | '.join(cells)} |" for cells in (columns, *lines))
    return [head, f"|{'---|' * len(columns)}", *body]


def with_table(page: str, table: str, begin: str = BEGIN) -> str:
    """Put the table between one mark of the page and the end after it. ValueError if one is missing."""
    before, found, rest = page.partition(begin)
    _, end, after = rest.partition(END)
    if not found or not end or begin in rest:
        raise ValueError(f"the page needs one '{begin}' and then one '{END}'")
    return f"{before}{begin}\n{table}{END}{after}"
