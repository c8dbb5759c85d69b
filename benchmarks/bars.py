"""Draws horizontal bars of measured times on a log scale, for modules that import matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure


def add(
    axes: Axes,
    places: Sequence[float],
    height: float,
    times: Sequence[Mapping[str, float]],
    color: str,
    label: str,
) -> list[float]:
    """Add a bar at each place. Returns the medians, in seconds.

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


def finish(axes: Axes, ticks: Sequence[str], title: str, unit: str) -> None:
    """Give a panel its scale, title, unit and a name for each group of bars, the first one on top."""
    axes.set_xscale("log")
    axes.set_yticks(range(len(ticks)), ticks, fontsize=8)
    axes.invert_yaxis()
    axes.tick_params(axis="x", labelsize=7)
    axes.set_title(title, fontsize=9)
    axes.set_xlabel(unit, fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def save(figure: Figure, columns: int, path: Path) -> None:
    """Write the picture, with one legend of so many columns for all panels."""
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper left", ncols=columns, frameon=False, fontsize=8)
    figure.savefig(path)
