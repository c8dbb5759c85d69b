"""Draws collectives over levels beside flat ones."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks import show
from benchmarks.report import picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
            medians = picture.bars(axes, places, 0.4, times, color, way)
            ends = zip((time["high"] for time in times), places, medians, strict=True)
            picture.values(axes, ((end, at, show.seconds_text(own)) for end, at, own in ends), 7)
        axes.set_yticks(range(len(cells)), [cell["operation"] for cell in cells], fontsize=8)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.25 * max(max(cell["seconds"]["flat"]) for cell in cells))
        axes.tick_params(axis="x", labelsize=7)
        axes.set_title(f"{show.size_text(largest)}, {plan['name']}", fontsize=8)
        axes.set_xlabel("seconds (median)", fontsize=8)
    row[0].legend(fontsize=8, loc="center right")
    figure.suptitle("Collectives, flat and over levels: the largest vectors that were measured", fontsize=10)
    return figure


def _spread(seconds: list[float]) -> dict[str, float]:
    return {"median": median(seconds), "low": min(seconds), "high": max(seconds)}
