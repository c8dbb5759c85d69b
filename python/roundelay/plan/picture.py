"""Draws predictions: scaling curves, and the parts of a step on the most nodes.

Imports matplotlib: import this module only where a picture is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter

from roundelay.plan.outlook import Row, on_most_nodes
from roundelay.plan.study import Study

_COLORS = ("#3b6fb6", "#57a773", "#d1362f", "#6a4c93", "#e09f3e", "#2b8c9e", "#8a5a44", "#30343b")
_COMPUTE, _HIDDEN, _EXPOSED = "#aab4c3", "#57a773", "#d1362f"


def _curves(axes: Axes, rows: Sequence[Row]) -> None:
    names = list(dict.fromkeys(row.strategy for row in rows))
    for index, name in enumerate(names):
        own = [row for row in rows if row.strategy == name]
        color = _COLORS[index % len(_COLORS)]
        nodes = [row.nodes for row in own]
        rates = [row.machines.ranks / row.seconds for row in own]
        axes.plot(nodes, rates, "o-", color=color, label=name, markersize=4)
        axes.fill_between(
            nodes,
            [row.machines.ranks / row.high for row in own],
            [row.machines.ranks / row.low for row in own],
            color=color,
            alpha=0.12,
            linewidth=0,
        )
    first = rows[0]
    every = sorted({row.nodes for row in rows})
    alone = first.seconds * first.efficiency
    shapes = sorted({row.machines.size for row in rows})
    axes.plot(
        [nodes for nodes, _, _ in shapes],
        [ranks / alone for _, ranks, _ in shapes],
        ":",
        color="#30343b",
        label="no communication",
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(every)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("nodes")
    axes.set_ylabel("steps of a rank, all ranks, in a second")
    axes.legend(fontsize=8, frameon=False)


def _bars(axes: Axes, rows: Sequence[Row]) -> None:
    own = on_most_nodes(rows)
    longest = max(row.seconds for row in own)
    factor, unit = (1e3, "ms") if longest < 1 else (1.0, "s")
    names = [row.strategy for row in own]
    compute = [factor * row.compute for row in own]
    axes.barh(names, compute, color=_COMPUTE, label="compute")
    axes.barh(names, [factor * row.exposed for row in own], left=compute, color=_EXPOSED, label="exposed")
    hidden = [factor * row.hidden for row in own]
    under = [max(0.0, end - length) for end, length in zip(compute, hidden, strict=True)]
    axes.barh(names, hidden, left=under, height=0.25, color=_HIDDEN, label="communication hidden")
    axes.invert_yaxis()
    axes.set_xlabel(f"a step on {own[0].machines.nodes_text()}, {unit}")
    axes.legend(fontsize=8, frameon=False)


def draw(rows: Sequence[Row], title: str, path: Path) -> None:
    """Write the picture. OSError: the file cannot be written."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _curves(left, rows)
    _bars(right, rows)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=130)


def draw_study(found: Study, title: str, path: Path) -> None:
    """Draw the efficiency of each strategy over each quantity. OSError: the file cannot be written."""
    figure = Figure(figsize=(3.4 * len(found), 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for axes, (quantity, lines) in zip(panels, found.items(), strict=True):
        for index, first in enumerate(lines[0][1]):
            factors = [factor for factor, _ in lines]
            shares = [100 * rows[index].efficiency for _, rows in lines]
            axes.plot(factors, shares, "o-", color=_COLORS[index % len(_COLORS)], label=first.strategy)
        axes.set_xscale("log", base=2)
        axes.set_xticks([factor for factor, _ in lines])
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.set_xlabel(f"{quantity}, factor")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("efficiency, %")
    panels[0].legend(fontsize=8, frameon=False)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=130)
