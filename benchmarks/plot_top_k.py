"""Draws the times of selections. Imports matplotlib: import this module only where a plot is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

_COLORS = {
    "mstopk": "#3b6fb6",
    "auto": "#1b3f74",
    "torch.topk": "#d1862f",
    "argpartition": "#b9bdc4",
    "sampled": "#7f8a5a",
    "reads": "#e3c9a8",
}
_LABELS = {"auto": "radix (auto)", "sampled": "sampled threshold (DGC)", "reads": "8 reads of the data"}


def plot(found: dict[str, Any], path: Path) -> None:
    """Draw a panel for each number of values: bars of all ways, on a log scale."""
    sizes = sorted({cell["size"] for cell in found["cells"]})
    figure = Figure(figsize=(4.6 * len(sizes), 4.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, size in zip(figure.subplots(1, len(sizes), squeeze=False)[0], sizes, strict=True):
        cells = [cell for cell in found["cells"] if cell["size"] == size]
        height = 0.84 / len(_COLORS)
        for place, (way, color) in enumerate(_COLORS.items()):
            times = [cell["seconds"][way] for cell in cells]
            spread = [
                [one["median"] - one["low"] for one in times],
                [one["high"] - one["median"] for one in times],
            ]
            places = [tick + (place - len(_COLORS) / 2) * height for tick in range(len(cells))]
            medians = [one["median"] for one in times]
            axes.barh(places, medians, height, xerr=spread, color=color, label=_LABELS.get(way, way))
        axes.set_xscale("log")
        ticks = [f"{cell['distribution']}\n{cell['density']:.1%}" for cell in cells]
        axes.set_yticks(range(len(cells)), ticks, fontsize=8)
        axes.invert_yaxis()
        axes.tick_params(axis="x", labelsize=7)
        axes.set_title(f"{size / (1 << 20):g}M values", fontsize=9)
        axes.set_xlabel("CPU seconds of a selection", fontsize=8)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper left", ncols=6, frameon=False, fontsize=8)
    figure.savefig(path)
