"""Draws searches: each setting is a bar, with the range of its steps, beside its predicted communication.

Imports matplotlib: import this module only where a picture is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from roundelay.tuning.trials.log import Tried

_KEPT, _OTHER, _PREDICTED = "#57a773", "#aab4c3", "#3b6fb6"
_ROW, _HEAD = 0.34, 1.0  # inches


def draw(searches: Sequence[Sequence[Tried]], path: Path) -> None:
    """Draw all searches into a file, one below the other. OSError: it cannot be written."""
    heights = [_HEAD + _ROW * len(search) for search in searches]
    figure = Figure(figsize=(9, sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(searches), 2, squeeze=False, height_ratios=heights, width_ratios=(2, 1))
    for (steps, predicted), search in zip(axes, searches, strict=True):
        _draw_steps(steps, search)
        _draw_predicted(predicted, search)
    figure.savefig(path, dpi=120)


def _draw_steps(axes: Axes, search: Sequence[Tried]) -> None:
    steps = [one.step_ms for one in search]
    whiskers = [
        [one.step_ms - one.fastest_ms for one in search],
        [one.slowest_ms - one.step_ms for one in search],
    ]
    colours = [_KEPT if one.kept else _OTHER for one in search]
    places = range(len(search))
    axes.barh(places, steps, color=colours, xerr=whiskers, error_kw={"ecolor": "#30343b", "capsize": 2})
    axes.set_yticks(places, [one.name for one in search])
    axes.invert_yaxis()
    axes.set_xlabel("step, ms (line: fastest to slowest)")
    axes.set_title(f"{search[0].optimizer}: the green one was kept", loc="left", fontsize=10)


def _draw_predicted(axes: Axes, search: Sequence[Tried]) -> None:
    known = [(place, one.predicted_ms) for place, one in enumerate(search) if one.predicted_ms is not None]
    axes.barh([place for place, _ in known], [value for _, value in known], color=_PREDICTED)
    axes.set_yticks([])
    axes.set_ylim(len(search) - 0.5, -0.5)
    axes.set_xlabel("predicted communication, ms")
