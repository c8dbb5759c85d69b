"""Writes the results as Markdown: a page for people who choose a library, and one with the goals."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import show
from benchmarks.table import goals
from benchmarks.table.line import COLUMNS
from benchmarks.table.markdown import rows, with_table
from benchmarks.table.result import Estimate, Peer, Result, from_json

DOCS = Path(__file__).resolve().parents[2] / "docs"
STORED = DOCS / "benchmarks.json"
PAGE, GOALS_PAGE = DOCS / "benchmarks.md", DOCS / "goals.md"
PICTURE = DOCS / "images" / "benchmarks.png"

_PROSE_COLUMNS = 110
_WITHOUT = (
    "A ratio without brackets has no interval: it was measured once, or before intervals and floors were."
)
_COLUMNS = ("work", "Roundelay", "floor", "Gloo, DDP", "MPI", "another way", "repetitions")
# A row's results: {"day": ..., "machine": {...}, "results": [Result.as_json()]}
Rows = Mapping[str, Mapping[str, Any]]


def results(found: Rows) -> list[Result]:
    """List the results of all rows."""
    return [from_json(one) for row in found.values() for one in row["results"]]


def where(found: Rows) -> str:
    """Say what was measured on which machine and day."""
    rows_of: dict[str, list[str]] = {}
    for name, row in found.items():
        machine = row["machine"]
        text = (
            f"{machine['cores']} cores of an {machine['cpu']}, torch {machine['torch']}, {machine['mpi']}, "
            f"Python {machine['python']}, one thread a rank, {row['day']}"
        )
        rows_of.setdefault(text, []).append(f"`{name}`")
    if len(rows_of) == 1:
        return "".join(rows_of) + "."
    return ". ".join(f"{', '.join(names)}: {text}" for text, names in rows_of.items()) + "."


def columns(all_: Sequence[Result]) -> list[str]:
    """Name the columns of the table with the peers; the last two exist if any row has data for them."""
    lacking = set()
    if not any(_other_ways(result) for result in all_):
        lacking.add("another way")
    if not any(result.kept is not None for result in all_):
        lacking.add("repetitions")
    return [name for name in _COLUMNS if name not in lacking]


def cells(all_: Sequence[Result]) -> list[list[str]]:
    """Make the texts of these columns."""
    places = [_COLUMNS.index(name) for name in columns(all_)]
    return [[own[place] for place in places] for own in map(_cells, all_)]


def peers_table(found: Rows) -> str:
    """Make the table with the peers."""
    all_ = results(found)
    old = any(peer.ratio.low is None for result in all_ for peer in result.peers if peer.ratio)
    note = [_WITHOUT, ""] if old else []
    return "\n".join([_filled(where(found)), "", *rows(columns(all_), cells(all_)), "", *note])


def _filled(prose: str) -> str:
    return textwrap.fill(prose, _PROSE_COLUMNS, break_long_words=False, break_on_hyphens=False)


def _cells(result: Result) -> list[str]:
    work = f"{result.work} ({result.note})" if result.note else result.work
    if result.own is None:
        return [work, f"not measured: {result.why}", *[""] * (len(_COLUMNS) - 2)]
    mpi = [peer for peer in result.peers if peer.name.startswith("MPI")]
    others = [peer for peer in result.peers if peer.name.startswith(("Gloo", "DDP"))]
    costs = [result.own, *(peer.cost for peer in mpi + others)]
    least = min(cost.value for cost in costs) if len(costs) > 1 else None
    own = _cost(result.own, result.unit, least)
    if result.tail is not None:
        own += f", p99 {show.quantity(result.tail.value, result.unit)}"
    beside = [
        "<br>".join(_peer(peer, result.unit, least) for peer in peers)
        for peers in (others, mpi, _other_ways(result))
    ]
    repetitions = "" if result.kept is None else f"{result.kept} of {result.of}"
    return [work, own, _floor(result), *beside, repetitions]


def _other_ways(result: Result) -> list[Peer]:
    """List the peers that are no other library: Roundelay's work done in another way."""
    return [peer for peer in result.peers if not peer.name.startswith(("MPI", "Gloo", "DDP"))]


def _floor(result: Result) -> str:
    if result.floor is None:
        return ""
    value = show.quantity(result.floor.value, result.unit)
    over = "" if result.over_floor is None else f": {_ratio(result.over_floor)}"
    return f"{result.floor_is} {value}{over}"


def _cost(cost: Estimate, unit: str, least: float | None) -> str:
    """Format a cost, bold if it is the least."""
    text = show.quantity(cost.value, unit)
    return f"**{text}**" if cost.value == least else text


def _peer(peer: Peer, unit: str, least: float | None) -> str:
    """Format a peer: its name unless the column says it, its cost, and the ratio to Roundelay's."""
    cost = _cost(peer.cost, unit, least)
    said = cost if peer.name == "MPI" else f"{peer.name} {cost}"
    return said if peer.ratio is None else f"{said}: {_ratio(peer.ratio)}"


def _ratio(ratio: Estimate) -> str:
    return show.quantity(ratio.value, "x") + show.interval(ratio.low, ratio.high, "x")


def goals_table(found: Rows) -> str:
    """Make the table of goals, after a line that counts how many are met."""
    compared = goals.compared({result.work: result for result in results(found)})
    verdicts = [line.verdict for line, _ in compared if line.verdict]
    counts = f"{verdicts.count('yes')} of {len(verdicts)} goals met"
    if noise := verdicts.count("within noise"):
        counts += f", {noise} missed by less than the noise"
    made = []
    for line, raised in compared:
        *first, goal, verdict = line.cells()
        made.append([*first, f"{goal}, {goals.RAISED}" if raised else goal, verdict])
    return "\n".join([_filled(f"{counts}. {where(found)}"), "", *rows(COLUMNS, made), ""])


def read() -> dict[str, Any]:
    """Read the latest results of the rows."""
    found: dict[str, Any] = json.loads(STORED.read_text())["rows"]
    return found


def write_pages(found: Rows) -> None:
    """Write both tables into docs."""
    PAGE.write_text(with_table(PAGE.read_text(), peers_table(found)))
    GOALS_PAGE.write_text(with_table(GOALS_PAGE.read_text(), goals_table(found)))
