"""Draws the table. Imports matplotlib: import this module only where a plot is wanted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import show
from benchmarks.table.line import Goal, Line

_MET, _MISSED, _TEXT, _GRID = "#57a773", "#d1362f", "#30343b", "#e4e6ea"
_LEAST, _MOST = 0.05, 20.0  # of the axis: what lies beyond is drawn at its end
_LINE_INCH = 0.27
_WIDTH = 11.0


def _note(line: Line, goal: Goal, value: float) -> str:
    sign = "of" if goal.at_least else "limit"
    return f"{show.quantity(value, line.unit)} ({sign} {show.quantity(goal.limit, line.unit)})"


def plot(lines: Sequence[Line], path: Path) -> None:
    """Draw how far each line is from its goal: to the right of 1 it is met."""
    drawn = [
        (line, line.goal, line.value) for line in lines if line.goal is not None and line.value is not None
    ]
    height = _LINE_INCH * len(drawn) + 1.3
    figure = Figure(figsize=(_WIDTH, height), dpi=110, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    scores = [min(max(goal.score(value), _LEAST), _MOST) for _, goal, value in drawn]
    colors = [_MET if line.met else _MISSED for line, _, _ in drawn]
    places = range(len(drawn))
    axes.barh(places, [math.log2(score) for score in scores], height=0.62, color=colors)
    for place, score, (line, goal, value) in zip(places, scores, drawn, strict=True):
        right = score >= 1
        axes.annotate(
            _note(line, goal, value),
            (math.log2(score), place),
            xytext=(4 if right else -4, 0),
            textcoords="offset points",
            ha="left" if right else "right",
            va="center",
            fontsize=7.5,
            color=_TEXT,
        )
    axes.axvline(0, color=_TEXT, linewidth=1)
    ticks = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)
    axes.set_xticks([math.log2(t) for t in ticks], [f"{t:g}" if t >= 1 else f"1/{1 / t:g}" for t in ticks])
    axes.set_xlim(math.log2(_LEAST) - 1.6, math.log2(_MOST) + 1.6)
    axes.set_yticks(
        places, [": ".join(filter(None, (line.work, line.peer))) for line, _, _ in drawn], fontsize=8
    )
    axes.set_ylim(len(drawn) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=_TEXT)
    axes.grid(axis="x", color=_GRID)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("times as good as the goal (log scale)", fontsize=9, color=_TEXT)
    met = sum(line.met is True for line, _, _ in drawn)
    axes.set_title(
        f"Goals of the speed table: {met} of {len(drawn)} met", loc="left", fontsize=12, color=_TEXT
    )
    figure.savefig(path)
