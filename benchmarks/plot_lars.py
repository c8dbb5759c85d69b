"""Draws the times of trust ratios. Imports matplotlib: import this module only where a plot is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import bars, show

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
            rows = [tick + (place - 1) * height for tick in ticks]
            medians = bars.add(axes, rows, height, times, color, way)
            for row, median in zip(rows, medians, strict=True):
                axes.text(median, row, f"  {show.seconds_text(median)}", va="center", fontsize=7)
        axes.margins(x=0.4)
        bars.finish(axes, [cell["model"] for cell in cells], title, "seconds of a step's trust ratios")
    bars.save(figure, 3, path)
