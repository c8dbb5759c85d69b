"""Draws docs/images/gpu_streams.png: `python docs/images/gpu_streams.py`, with matplotlib."""

from __future__ import annotations

import sys
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

_TARGET = Path(__file__).with_suffix(".png")
_WORK, _COMMUNICATION, _WAIT, _TEXT, _EVENT = "#9db8dc", "#8ccba3", "#f4f5f7", "#30343b", "#d1362f"
_HOST, _DEVICE = "#fbf6ea", "#eef2f8"
_HEIGHT = 0.62
_ROWS = {"your thread": 5.0, "lane's thread": 4.0, "your stream": 2.0, "communication stream": 0.6}
# (row, from, to, color, text)
_BLOCKS = (
    ("your thread", 2.0, 10.0, _WORK, "backward"),
    ("your thread", 10.0, 17.0, _COMMUNICATION, "submit b"),
    ("your thread", 17.0, 25.0, _WORK, "backward"),
    ("your thread", 25.0, 32.0, _COMMUNICATION, "submit a"),
    ("your thread", 32.0, 44.0, _WORK, "step()"),
    ("your thread", 44.0, 62.0, _WORK, "next step's forward ..."),
    ("lane's thread", 18.0, 27.0, _COMMUNICATION, "enqueue b"),
    ("lane's thread", 33.0, 42.0, _COMMUNICATION, "enqueue a"),
    ("your stream", 8.0, 34.0, _WORK, "gradient b"),
    ("your stream", 34.0, 56.0, _WORK, "gradient a"),
    ("your stream", 56.0, 80.0, _WAIT, "waits for both events"),
    ("your stream", 80.0, 92.0, _WORK, "update"),
    ("your stream", 92.0, 100.0, _WORK, "forward"),
    ("communication stream", 36.0, 55.0, _COMMUNICATION, "pack b · reduce · unpack"),
    ("communication stream", 58.0, 77.5, _COMMUNICATION, "pack a · reduce · unpack"),
)
# (from row, x, to row, x, text)
_EVENTS = (
    ("your stream", 34.0, "communication stream", 36.0, "ready b"),
    ("your stream", 56.0, "communication stream", 58.0, "ready a"),
    ("communication stream", 55.0, "your stream", 80.0, "there b"),
    ("communication stream", 77.5, "your stream", 80.0, "there a"),
)
_ENQUEUED = (
    ("your thread", 6.0, "your stream", 10.0),
    ("lane's thread", 27.0, "communication stream", 39.0),
    ("lane's thread", 42.0, "communication stream", 61.0),
    ("your thread", 44.0, "your stream", 83.0),
)


def _blocks(axes: Axes) -> None:
    for row, begin, end, color, text in _BLOCKS:
        y = _ROWS[row]
        style = "--" if color == _WAIT else "-"
        corner, width = (begin, y - _HEIGHT / 2), end - begin
        axes.add_patch(
            Rectangle(corner, width, _HEIGHT, facecolor=color, edgecolor="#70767f", linestyle=style)
        )
        axes.text((begin + end) / 2, y, text, ha="center", va="center", fontsize=8, color=_TEXT)


def _arrow(axes: Axes, begin: tuple[float, float], end: tuple[float, float], event: bool) -> None:
    look = {"color": _EVENT, "linewidth": 1.5} if event else {"color": "#70767f", "linestyle": ":"}
    axes.add_patch(FancyArrowPatch(begin, end, arrowstyle="-|>", mutation_scale=11, **look))


def _edge(row: str, other: str) -> float:
    """The side of a row that looks to the other."""
    return _ROWS[row] + (_HEIGHT / 2 if _ROWS[other] > _ROWS[row] else -_HEIGHT / 2)


def _arrows(axes: Axes) -> None:
    for row, x, other, other_x in _ENQUEUED:
        _arrow(axes, (x, _edge(row, other)), (other_x, _edge(other, row)), event=False)
    for row, x, other, other_x, text in _EVENTS:
        begin, end = (x, _edge(row, other)), (other_x, _edge(other, row))
        _arrow(axes, begin, end, event=True)
        place = ((begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2)
        axes.annotate(text, place, xytext=(5, -3), textcoords="offset points", fontsize=7.5, color=_EVENT)


def main() -> int:
    """Draw it; return the exit code."""
    figure = Figure(figsize=(11, 4.4), dpi=110, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.axhspan(3.4, 5.8, color=_HOST, zorder=0)
    axes.axhspan(0.0, 2.6, color=_DEVICE, zorder=0)
    axes.text(99.5, 5.65, "host", ha="right", va="top", fontsize=9, color=_TEXT)
    axes.text(99.5, 0.12, "device", ha="right", va="bottom", fontsize=9, color=_TEXT)
    _blocks(axes)
    _arrows(axes)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 5.8)
    axes.set_yticks(list(_ROWS.values()), list(_ROWS))
    axes.set_xticks([])
    axes.set_xlabel(
        "time  (dotted: enqueues; red: an event that one stream marks and the other waits for)", fontsize=9
    )
    axes.tick_params(axis="y", length=0, labelcolor=_TEXT)
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure.savefig(_TARGET, metadata={"Software": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
