"""Draws the times of selections. Imports matplotlib: import this module only where a plot is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import bars

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
            places = [tick + (place - len(_COLORS) / 2) * height for tick in range(len(cells))]
            bars.add(axes, places, height, times, color, _LABELS.get(way, way))
        ticks = [f"{cell['distribution']}\n{cell['density']:.1%}" for cell in cells]
        bars.finish(axes, ticks, f"{size / (1 << 20):g}M values", "CPU seconds of a selection")
    bars.save(figure, 6, path)
