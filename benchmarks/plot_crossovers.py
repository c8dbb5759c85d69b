"""Draws the times of algorithms. Imports matplotlib: import this module only where a plot is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

_COLORS = {
    "recursive_doubling": "#d1862f",
    "halving_doubling": "#3b6fb6",
    "ring": "#7f8a5a",
    "pairwise": "#b9bdc4",
}


def plot(found: dict[str, Any], path: Path) -> None:
    """Draw each algorithm's times as points, and the model's as a line, over the size."""
    figure = Figure(figsize=(6.4, 4.0), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for algorithm, color in _COLORS.items():
        for times, style, label in (
            (found["model"][algorithm], "-", algorithm),
            (found["seconds"][algorithm], "o", None),
        ):
            sizes = sorted(times)
            milliseconds = [1e3 * times[size] for size in sizes]
            axes.plot(sizes, milliseconds, style, color=color, label=label, markersize=4, linewidth=1.2)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("bytes of the sum")
    axes.set_ylabel("ms")
    title = f"{found['members']} members, {found['alpha_us']} us a message, {found['mbit']} Mbit/s"
    axes.set_title(f"{title}: measured (points), model (lines)", fontsize=9)
    axes.legend(fontsize=8, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
