"""Draws collectives over levels beside flat ones."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks import show
from benchmarks.report import picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OPERATIONS = ("allreduce", "allgather", "reducescatter", "broadcast")
_COLORS = {"flat": picture.SILVER, "levels": picture.BLUE}


def collectives(stored: dict[str, Any]) -> Figure:
    """Draw a panel for each plan: the times of the largest vectors, flat and over levels."""
    plans = stored["plans"]
    figure, [row] = picture.panels(1, len(plans), (3.4 * len(plans), 2.6), 120)
    for axes, plan in zip(row, plans, strict=True):
        largest = max(cell["bytes"] for cell in plan["cells"])
        cells = [cell for cell in plan["cells"] if cell["bytes"] == largest]
        for place, (way, color) in enumerate(_COLORS.items()):
            places = [tick + 0.4 * (place - 0.5) for tick in range(len(cells))]
            times = [_spread(cell["seconds"][way]) for cell in cells]
            picture.bars(axes, places, 0.4, times, color, way)
        title = f"{show.size_text(largest)}, {plan['name']}"
        picture.log_bars(axes, [cell["operation"] for cell in cells], title, "seconds (median)")
    row[0].legend(fontsize=8)
    figure.suptitle("Collectives, flat and over levels: the largest vectors that were measured", fontsize=10)
    return figure


def _spread(seconds: list[float]) -> dict[str, float]:
    return {"median": median(seconds), "low": min(seconds), "high": max(seconds)}
