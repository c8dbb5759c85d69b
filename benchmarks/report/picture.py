"""What pictures share: panels, bars, points, axes and legends. Imports matplotlib when it draws."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks import show

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, DARK_BLUE, ORANGE, GREEN, PURPLE, RED = "#3b6fb6", "#1b3f74", "#d1862f", "#57a773", "#7b4fa3", "#d1362f"
OLIVE, TEAL, SAND = "#7f8a5a", "#2a9d8f", "#e3c9a8"
TEXT, GRAY, SILVER, QUIET, PALE = "#30343b", "#7a7f87", "#b9bdc4", "#9aa1ab", "#e4e6ea"
_OPEN = ("top", "right")
Found = TypeVar("Found")


def draw(paint: Callable[[Found], Figure], found: Found, path: Path) -> None:
    """Draw what was measured into a file. Says so where matplotlib is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        print("no plot, matplotlib is missing: pip install matplotlib")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    paint(found).savefig(path)
    print(f"wrote {path}")


def panels(
    rows: int,
    columns: int,
    size: tuple[float, float],
    dpi: int,
    *,
    sides: Sequence[str] = _OPEN,
    sharey: bool = False,
) -> tuple[Figure, list[list[Axes]]]:
    """Make a figure with rows of panels.

    Args:
        rows: the number of rows.
        columns: the number of panels in a row.
        size: width and height of the figure, in inches.
        dpi: pixels of an inch.
        sides: the sides of a panel that have no line.
        sharey: the panels of a row have one vertical axis.

    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=dpi, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, sharey="row" if sharey else False)
    for one in axes.flat:
        for side in sides:
            one.spines[side].set_visible(False)
    return figure, [list(row) for row in axes]


def panel(size: tuple[float, float], dpi: int, sides: Sequence[str] = _OPEN) -> tuple[Figure, Axes]:
    """Make a figure with one panel."""
    figure, [[axes]] = panels(1, 1, size, dpi, sides=sides)
    return figure, axes


def bars(
    axes: Axes,
    places: Sequence[float],
    height: float,
    times: Sequence[Mapping[str, float]],
    color: str,
    label: str,
) -> list[float]:
    """Add a bar at each place, with its quartiles. Returns the medians, in seconds.

    Args:
        axes: the panel.
        places: the bars' places on the vertical axis.
        height: the height of a bar.
        times: `median`, `low` and `high` of each bar, in seconds.
        color: the bars' color.
        label: their name in the legend.

    """
    medians = [one["median"] for one in times]
    spread = [[one["median"] - one["low"] for one in times], [one["high"] - one["median"] for one in times]]
    axes.barh(places, medians, height, xerr=spread, color=color, label=label)
    return medians


def log_bars(axes: Axes, ticks: Sequence[str], title: str, unit: str) -> None:
    """Give a panel of bars a log scale, title, unit and a name for each group, the first one on top."""
    axes.set_xscale("log")
    axes.set_yticks(range(len(ticks)), ticks, fontsize=8)
    axes.invert_yaxis()
    axes.tick_params(axis="x", labelsize=7)
    axes.set_title(title, fontsize=9)
    axes.set_xlabel(unit, fontsize=8)


def values(axes: Axes, ends: Iterable[tuple[float, float, str]], size: float = 8) -> None:
    """Write texts to the right of bars: end and place of each bar, and its text."""
    for end, place, text in ends:
        axes.text(end, place, f" {text}", va="center", fontsize=size)


def log_seconds(axes: Axes, lines: int) -> None:
    """Give a panel with so many lines of points a log scale of seconds, the first line on top."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: show.seconds_text(seconds)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(lines - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=TEXT)
    axes.grid(axis="x", color=PALE)
    axes.set_axisbelow(True)


def point(axes: Axes, where: tuple[float, float] | None, style: tuple[str, str, float], **more: Any) -> None:
    """Add a point of a style: color, marker, size. Without a place only the legend has it."""
    color, marker, size = style
    x, y = ([], []) if where is None else ([where[0]], [where[1]])
    axes.plot(x, y, linestyle="", marker=marker, markersize=size, color=color, markeredgewidth=2, **more)


def styles_legend(figure: Figure, axes: Axes, styles: Mapping[str, tuple[str, str, float]]) -> None:
    """Put the names of styles above the panels."""
    for name, style in styles.items():
        point(axes, None, style, label=name)
    legend_above(figure, len(styles), 9)


def legend_above(figure: Figure, columns: int, size: float = 8) -> None:
    """Put the first panel's names above all panels."""
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper left", ncols=columns, frameon=False, fontsize=size)
