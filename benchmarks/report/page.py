"""Makes tables in Markdown, and puts them into the pages of docs, between two marks."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import show
from benchmarks.table.result import Estimate

DOCS = Path(__file__).resolve().parents[2] / "docs"
RESULTS, IMAGES = DOCS / "results", DOCS / "images"
END = "<!-- to here -->"
_PROSE_COLUMNS = 110


@dataclass(frozen=True)
class Part:
    """The part of a page that a command writes: all between a mark with the command and the next END."""

    page: Path
    command: str

    @property
    def begin(self) -> str:
        """Return the mark before the part."""
        return f"<!-- {self.command} writes from here -->"

    def filled(self, text: str) -> str:
        """Return the page with this text as the part. ValueError if a mark is missing."""
        return with_text(self.page.read_text(), text, self.begin)

    def write(self, text: str) -> None:
        """Put the text into the page. ValueError if a mark is missing."""
        self.page.write_text(self.filled(text))


def part(page: Path, module: str) -> Part:
    """Return the part of a page that `python -m benchmarks.<module> --docs` writes."""
    return Part(page, f"python -m benchmarks.{module} --docs")


def with_text(page: str, text: str, begin: str) -> str:
    """Put the text between one mark of the page and the END after it. ValueError if one is missing."""
    before, found, rest = page.partition(begin)
    _, end, after = rest.partition(END)
    if not found or not end or begin in rest:
        raise ValueError(f"the page needs one '{begin}' and then one '{END}'")
    return f"{before}{begin}\n{text}{END}{after}"


def rows(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Make the lines of a Markdown table."""
    head, *body = (f"| {' | '.join(cells)} |" for cells in (columns, *lines))
    return [head, f"|{'---|' * len(columns)}", *body]


def folded(prose: str) -> str:
    """Break prose into lines."""
    return textwrap.fill(prose, _PROSE_COLUMNS, break_long_words=False, break_on_hyphens=False)


def host(machine: Mapping[str, Any], *software: str) -> str:
    """Name a machine, and the software of these keys: "torch", "mpi", "python"."""
    names = {"torch": "torch ", "python": "Python "}
    said = [f"{names.get(key, '')}{machine[key]}" for key in software]
    return ", ".join([f"{machine['cores']} cores of an {machine['cpu']}", *said])


def estimate(value: Estimate, unit: str) -> str:
    """Format a value, and its interval if it has one."""
    return show.quantity(value.value, unit) + show.interval(value.low, value.high, unit)


def read(path: Path) -> dict[str, Any]:
    """Read stored results."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found
