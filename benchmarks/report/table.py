"""The speed table: a page for people who choose a library, one with the goals, and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks import show
from benchmarks.report import page, picture
from benchmarks.table import goals
from benchmarks.table.line import COLUMNS
from benchmarks.table.result import Estimate, Peer, Result, from_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STORED = page.RESULTS / "benchmarks.json"
PEERS, GOALS = (page.part(page.RESULTS / f"{name}.md", "table") for name in ("benchmarks", "goals"))
SHORT = page.part(page.DOCS / "benchmarks.md", "table")
PICTURE = page.IMAGES / "benchmarks.png"

_WITHOUT = (
    "A ratio without brackets has no interval: it was measured once, or before intervals and floors were."
)
_COLUMNS = ("work", "Roundelay", "floor", "Gloo, DDP", "MPI", "another way", "repetitions")
_SHORT_COLUMNS = ("work", "Roundelay", "Gloo, or DDP over it", "MPI")
_SHORT_WORKS = {  # what a reader wants to know first
    "25 MiB fp32, in the pool, 2 ranks": "sum 25 MiB of gradients in the pool, 2 ranks",
    "161 tensors, 97.5 MiB, 2 ranks": "sum ResNet-50's 161 gradients, 2 ranks",
    "exposed in a step, ResNet-50, 2 ranks": "what communication adds to a step of ResNet-50, 2 ranks",
    "exposed in a step, GPT-2 small, 2 ranks": "what it adds to a step of GPT-2 small, 2 ranks",
    "25 MiB fp32, 2 nodes of 2 ranks, 10 Gbit/s, time": "sum 25 MiB on 2 nodes of 2 ranks, 10 Gbit/s",
    "256 B blocking, in a row, 2 ranks": "a blocking sum of 256 bytes, 2 ranks",
    "CPU of a rank that waits 50 ms for another": "CPU time of a rank that waits 50 ms for another",
}
# A row's results: {"day": ..., "machine": {...}, "results": [Result.as_json()]}
Rows = Mapping[str, Mapping[str, Any]]


def results(found: Rows) -> list[Result]:
    """List the results of all rows."""
    return [from_json(one) for row in found.values() for one in row["results"]]


def where(found: Rows) -> str:
    """Say what was measured on which machine and day."""
    rows_of: dict[str, list[str]] = {}
    for name, row in found.items():
        text = f"{page.host(row['machine'], 'torch', 'mpi', 'python')}, one thread per rank, {row['day']}"
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
    return "\n".join([page.folded(where(found)), "", *page.rows(columns(all_), cells(all_)), "", *note])


def short_table(found: Rows) -> str:
    """Make the lines that the benchmarks' page begins with: times alone, the best of each library."""
    of_work = {result.work: result for result in results(found)}
    made = [_short_cells(of_work[work], said) for work, said in _SHORT_WORKS.items() if work in of_work]
    return "\n".join([*page.rows(_SHORT_COLUMNS, made), ""])


def _short_cells(result: Result, said: str) -> list[str]:
    if result.own is None:
        return [said, "not measured", "", ""]
    costs = [result.own, _best(result, ("Gloo", "DDP")), _best(result, ("MPI",))]
    least = min(cost.value for cost in costs if cost is not None)
    return [said, *("" if cost is None else _cost(cost, result.unit, least) for cost in costs)]


def _best(result: Result, libraries: tuple[str, ...]) -> Estimate | None:
    costs = (peer.cost for peer in result.peers if peer.name.startswith(libraries))
    return min(costs, key=lambda cost: cost.value, default=None)


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
    over = "" if result.over_floor is None else f": {page.estimate(result.over_floor, 'x')}"
    return f"{result.floor_is} {value}{over}"


def _cost(cost: Estimate, unit: str, least: float | None) -> str:
    """Format a cost, bold if it is the least."""
    text = show.quantity(cost.value, unit)
    return f"**{text}**" if cost.value == least else text


def _peer(peer: Peer, unit: str, least: float | None) -> str:
    """Format a peer: its name unless the column says it, its cost, and the ratio to Roundelay's."""
    cost = _cost(peer.cost, unit, least)
    said = cost if peer.name == "MPI" else f"{peer.name} {cost}"
    return said if peer.ratio is None else f"{said}: {page.estimate(peer.ratio, 'x')}"


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
    return "\n".join([page.folded(f"{counts}. {where(found)}"), "", *page.rows(COLUMNS, made), ""])


def read() -> dict[str, Any]:
    """Read the latest results of the rows."""
    found: dict[str, Any] = page.read(STORED)["rows"]
    return found


_OWN = "Roundelay"
_STYLES = {  # by kind: color, marker, size
    _OWN: (picture.BLUE, "o", 9.0),
    "Gloo or DDP": (picture.ORANGE, "s", 6.5),
    "MPI": (picture.GREEN, "D", 6.0),
    "floor: what the work takes by itself": (picture.TEXT, "|", 13.0),
}
_FLOOR = list(_STYLES)[-1]
_LINE_INCH = 0.42
_WIDTH = 10.5


def _kind(peer: str) -> str | None:
    """Return the kind of a peer; None for Roundelay's other types, which are not drawn."""
    if peer.startswith("MPI"):
        return "MPI"
    return "Gloo or DDP" if peer.startswith(("Gloo", "DDP")) else None


def _points(result: Result) -> dict[str, float]:
    """Return the time of each kind. If a kind has several peers, the fastest counts."""
    assert result.own is not None
    points = {_OWN: result.own.value}
    for peer in result.peers:
        if kind := _kind(peer.name):
            points[kind] = min(peer.cost.value, points.get(kind, peer.cost.value))
    if result.floor is not None:
        points[_FLOOR] = result.floor.value
    return points


def _verdict(result: Result) -> str:
    """Say who is fastest, and by how much, among those that do the whole work."""
    assert result.own is not None
    own = result.own.value
    others = [(peer.cost.value, peer.name.partition(",")[0]) for peer in result.peers if _kind(peer.name)]
    if not others:
        return "" if result.floor is None else f"{own / result.floor.value:.2f}x its floor"
    time, best = min(others)
    if own <= time:
        return f"{_OWN}, {time / own:.1f}x as fast as {best}"
    return f"{best}, {own / time:.1f}x as fast as {_OWN}"


def _paint(axes: Axes, place: int, result: Result) -> None:
    points = _points(result)
    low, high = min(points.values()), max(points.values())
    axes.hlines(place, low, high, color=picture.PALE, linewidth=3, zorder=1)
    for kind, value in points.items():
        picture.point(axes, (value, place), _STYLES[kind], zorder=3)
    verdict = _verdict(result)
    axes.annotate(
        verdict,
        (1.01, place),
        xycoords=("axes fraction", "data"),
        va="center",
        fontsize=8.5,
        color=_STYLES[_OWN][0] if verdict.startswith(_OWN) else picture.TEXT,
    )


def paint(found: Rows) -> Figure:
    """Draw a line of points for each headline, on a log scale."""
    drawn = [result for result in results(found) if result.headline and result.own is not None]
    size = _WIDTH, _LINE_INCH * len(drawn) + 1.4
    figure, axes = picture.panel(size, 110, sides=("top", "right", "left"))
    for place, result in enumerate(drawn):
        _paint(axes, place, result)
    picture.log_seconds(axes, len(drawn))
    axes.set_yticks(range(len(drawn)), [result.headline for result in drawn], fontsize=9)
    axes.set_xlabel("time, log scale: further left is faster", fontsize=9, color=picture.TEXT)
    picture.styles_legend(figure, axes, _STYLES)
    return figure


def render(found: Rows) -> None:
    """Put the tables and the picture into the docs."""
    SHORT.write(short_table(found))
    PEERS.write(peers_table(found))
    GOALS.write(goals_table(found))
    picture.draw(paint, found, PICTURE)
