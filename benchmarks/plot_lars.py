"""Draws the times of trust ratios. Imports matplotlib: import this module only where a plot is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import show

_COLORS = {"per layer": "#b9bdc4", "multi-tensor": "#d1862f", "shared": "#3b6fb6"}


def plot(found: dict[str, Any], path: Path) -> None:
    """Draw a panel for each job, and one for the model; bars of all ways, on a log scale."""
    panels = [(f"{job['ranks']} ranks, measured", job["cells"]) for job in found["jobs"]]
    if found["model"]:
        panels.append(("128 GPUs, the model", found["model"]))
    figure = Figure(figsize=(3.6 * len(panels), 2.8), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (title, cells) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        ticks, height = range(len(cells)), 0.8 / len(_COLORS)
        for place, (way, color) in enumerate(_COLORS.items()):
            times = [cell["seconds"][way] for cell in cells]
            medians = [one["median"] for one in times]
            spread = [
                [one["median"] - one["low"] for one in times],
                [one["high"] - one["median"] for one in times],
            ]
            rows = [tick + (place - 1) * height for tick in ticks]
            axes.barh(rows, medians, height, xerr=spread, color=color, label=way)
            for row, median in zip(rows, medians, strict=True):
                axes.text(median, row, f"  {show.seconds_text(median)}", va="center", fontsize=7)
        axes.set_xscale("log")
        axes.margins(x=0.4)
        axes.set_yticks(ticks, [cell["model"] for cell in cells], fontsize=8)
        axes.invert_yaxis()
        axes.tick_params(axis="x", labelsize=7)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("seconds of a step's trust ratios", fontsize=8)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper left", ncols=3, frameon=False, fontsize=8)
    figure.savefig(path)
