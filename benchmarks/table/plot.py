"""Draws the times of all contenders. Imports matplotlib, so import this module only if a plot is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from benchmarks import show
from benchmarks.table.result import Result

_TEXT, _GRID, _QUIET = "#30343b", "#e4e6ea", "#9aa1ab"
_OWN = "Roundelay"
_STYLES = {  # by kind: color, marker, size
    _OWN: ("#3b6fb6", "o", 9.0),
    "Gloo or DDP": ("#d1862f", "s", 6.5),
    "MPI": ("#57a773", "D", 6.0),
    "floor: what the work takes by itself": (_TEXT, "|", 13.0),
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


def _draw(axes: Axes, place: int, result: Result) -> None:
    points = _points(result)
    axes.hlines(place, min(points.values()), max(points.values()), color=_GRID, linewidth=3, zorder=1)
    for kind, value in points.items():
        color, marker, size = _STYLES[kind]
        axes.plot(
            value,
            place,
            linestyle="",
            marker=marker,
            markersize=size,
            color=color,
            markeredgewidth=2,
            zorder=3,
        )
    verdict = _verdict(result)
    color = _STYLES[_OWN][0] if verdict.startswith(_OWN) else _TEXT
    axes.annotate(
        verdict,
        (1.01, place),
        xycoords=("axes fraction", "data"),
        va="center",
        fontsize=8.5,
        color=color,
    )


def plot(results: Sequence[Result], path: Path) -> None:
    """Draw a line of points for each headline, on a log scale."""
    drawn = [result for result in results if result.headline and result.own is not None]
    figure = Figure(figsize=(_WIDTH, _LINE_INCH * len(drawn) + 1.4), dpi=110, facecolor="white")
    FigureCanvasAgg(figure)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    for place, result in enumerate(drawn):
        _draw(axes, place, result)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: show.seconds_text(seconds)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks(range(len(drawn)), [result.headline for result in drawn], fontsize=9)
    axes.set_ylim(len(drawn) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=_TEXT)
    axes.grid(axis="x", color=_GRID)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("time, log scale: further left is faster", fontsize=9, color=_TEXT)
    for kind, (color, marker, size) in _STYLES.items():
        axes.plot(
            [], [], linestyle="", marker=marker, markersize=size, color=color, markeredgewidth=2, label=kind
        )
    figure.legend(loc="outside upper left", ncols=len(_STYLES), frameon=False, fontsize=9)
    figure.savefig(path)
