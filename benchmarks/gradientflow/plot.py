"""Draws the steps of all contenders. Imports matplotlib, so import this module only if a plot is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from benchmarks import show
from benchmarks.gradientflow.contenders import ALONE, CONTENDERS
from benchmarks.gradientflow.result import Row, Wire, wire_seconds

_TEXT, _GRID, _QUIET = "#30343b", "#e4e6ea", "#9aa1ab"
_OWN, _PEER = "#3b6fb6", "#d1862f"
_COLORS = {each.name: _OWN if each.own else _PEER for each in CONTENDERS.values()} | {ALONE.name: _QUIET}
_STYLES = {  # by kind: color, marker
    "Roundelay": (_OWN, "o"),
    "PyTorch's DDP over Gloo": (_PEER, "o"),
    "no communication": (_QUIET, "o"),
    "the wire alone": (_TEXT, "|"),
}
_LINE_INCH = 0.36


def fastest(rows: Sequence[Row]) -> str:
    """Say whose step takes the least time, of those that communicate."""
    best = min((row for row in rows if row.loss is not None), key=lambda row: row.step.value)
    return f"fastest: {best.name}, {show.seconds_text(best.step.value)}"


def _draw(axes: Axes, wire: Wire) -> None:
    for place, row in enumerate(wire.rows):
        color, step = _COLORS[row.name], row.step
        axes.hlines(place, step.low or step.value, step.high or step.value, color=color, linewidth=3)
        axes.plot(step.value, place, "o", color=color, markersize=7)
        if row.loss is not None:
            least = wire_seconds(row.least, wire.mbit)
            axes.plot(least, place, "|", color=_TEXT, markersize=12, markeredgewidth=2)
        axes.annotate(
            show.seconds_text(step.value),
            (step.high or step.value, place),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=_TEXT,
        )
    axes.set_xscale("log")
    steps = [row.step.value for row in wire.rows]
    axes.set_xlim(min(steps) / 2.5, max(steps) * 2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: show.seconds_text(seconds)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(len(wire.rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=_TEXT)
    axes.grid(axis="x", color=_GRID)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_title(f"{wire.mbit} Mbit/s, {fastest(wire.rows)}", fontsize=10, color=_TEXT)


def plot(wires: Sequence[Wire], path: Path) -> None:
    """Draw a panel for each wire, with a line for each contender, on a log scale."""
    lines = max(len(wire.rows) for wire in wires)
    figure = Figure(figsize=(5.6 * len(wires) + 1.6, _LINE_INCH * lines + 1.5), dpi=110, facecolor="white")
    FigureCanvasAgg(figure)
    figure.set_layout_engine("constrained")
    panels = figure.subplots(1, len(wires), squeeze=False, sharey=True)[0]
    for axes, wire in zip(panels, wires, strict=True):
        _draw(axes, wire)
    panels[0].set_yticks(range(lines), [row.name for row in wires[0].rows], fontsize=9)
    figure.supxlabel("time of a step, log scale: further left is faster", fontsize=9, color=_TEXT)
    for kind, (color, marker) in _STYLES.items():
        panels[0].plot(
            [], [], linestyle="", marker=marker, markersize=8, markeredgewidth=2, color=color, label=kind
        )
    figure.legend(loc="outside upper left", ncols=len(_STYLES), frameon=False, fontsize=9)
    figure.savefig(path)
