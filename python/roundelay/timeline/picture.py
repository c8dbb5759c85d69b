"""Draws a few steps of a job: ranks as lanes, what they computed above what they communicated.

Imports matplotlib: import this module only where a picture is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from roundelay.timeline import analysis
from roundelay.timeline.analysis import Step
from roundelay.timeline.events import Trace
from roundelay.timeline.intervals import Interval, clip, subtract
from roundelay.timeline.report import bytes_text, headline, time_text

_BACKWARD, _OTHER, _HIDDEN, _EXPOSED, _TEXT = "#3b6fb6", "#e4e6ea", "#57a773", "#d1362f", "#30343b"
_UPPER, _LOWER = (0.50, 0.36), (0.10, 0.36)  # bottom and height in a lane of height 1
_LEGEND = (
    ("backward", _BACKWARD),
    ("other work: forward, optimizer, data", _OTHER),
    ("communication hidden behind backward", _HIDDEN),
    ("exposed communication", _EXPOSED),
)


def _scale(length: float) -> tuple[float, str]:
    """Choose microseconds a unit of the axis, and the unit's name."""
    for limit, divisor, unit in ((2e3, 1.0, "us"), (5e6, 1e3, "ms")):
        if length < limit:
            return divisor, unit
    return 1e6, "s"


class _Lanes:
    """The axes, in units of the picture."""

    def __init__(self, axes: Axes, begin: float, end: float) -> None:
        self.axes = axes
        self.begin, self.end = begin, end
        self.unit, self.unit_name = _scale(end - begin)

    def x(self, moment: float) -> float:
        return (moment - self.begin) / self.unit

    def bars(
        self, intervals: Sequence[Interval], lane: float, half: tuple[float, float], color: str, **how: Any
    ) -> None:
        boxes = [(self.x(b), (e - b) / self.unit) for b, e in clip(intervals, self.begin, self.end)]
        # A thin edge keeps short operations visible.
        edge: dict[str, Any] = {"linewidth": 0.4, "edgecolor": color, **how}
        self.axes.broken_barh(boxes, (lane + half[0], half[1]), facecolors=color, **edge)


def _draw_rank(lanes: _Lanes, trace: Trace, rank: int, lane: float, steps: Sequence[Step]) -> None:
    windows = analysis.windows(trace, rank)
    open_ = analysis.exposed(trace, rank)
    waits = analysis.blocked(trace, rank)
    behind = analysis.backward(trace, rank)
    lanes.bars(subtract(windows, waits), lane, _UPPER, _OTHER)
    lanes.bars(behind, lane, _UPPER, _BACKWARD)
    lanes.bars(waits, lane, _UPPER, "white", edgecolor=_EXPOSED, hatch="//////", linewidth=0.8)
    lanes.bars(subtract(analysis.communication(trace, rank), open_), lane, _LOWER, _HIDDEN)
    lanes.bars(open_, lane, _LOWER, _EXPOSED)
    for _, end in windows:
        if lanes.begin <= end <= lanes.end:
            lanes.axes.plot([lanes.x(end)] * 2, [lane + 0.04, lane + 0.92], color=_TEXT, linewidth=0.9)
    own = [s for s in steps if s.rank == rank]
    cost, all_ = (time_text(analysis.median(own, field)) for field in ("exposed", "communication"))
    note = f"exposed {cost}\nof {all_}"
    lanes.axes.annotate(
        note, (1.01, lane + 0.5), xycoords=("axes fraction", "data"), va="center", fontsize=8.5, color=_TEXT
    )


def _name_steps(lanes: _Lanes, trace: Trace, indices: range, top: float) -> None:
    for index, (begin, end) in enumerate(analysis.windows(trace, trace.ranks[0])):
        if index in indices:
            middle = (max(begin, lanes.begin) + min(end, lanes.end)) / 2
            lanes.axes.text(
                lanes.x(middle), top, f"step {index}", ha="center", va="bottom", fontsize=9, color=_TEXT
            )


def _titles(figure: Figure, trace: Trace, steps: Sequence[Step], height: float) -> None:
    hidden = analysis.hidden_share(steps)
    first = [s for s in steps if s.rank == trace.ranks[0]]
    title = (
        "No communication in these steps"
        if hidden is None
        else f"{hidden:.0%} of communication is hidden behind backward"
    )
    tensors, operations = (analysis.median(first, field) for field in ("tensors", "operations"))
    size = bytes_text(analysis.median(first, "bytes"))
    # A bucket of a gradient pool is one tensor: their number says nothing where nothing else was fused.
    what = size if tensors == operations else f"{tensors:.0f} tensors, {size}"
    words = [f"{what} in {operations:.0f} operations a step"]
    late = analysis.stragglers(trace)
    if late and len(trace.ranks) > 1:
        share = f"{late[0].times} of {sum(s.times for s in late)} times"
        words.append(f"rank {late[0].rank} was last {share}, by {time_text(late[0].median)}")
    figure.text(0.07, 1 - 0.36 / height, title, fontsize=14, fontweight="bold", color=_TEXT, va="center")
    figure.text(0.07, 1 - 0.68 / height, headline(trace, steps), fontsize=9.5, color=_TEXT, va="center")
    figure.text(0.07, 1 - 0.92 / height, "; ".join(words), fontsize=9.5, color=_TEXT, va="center")


def _extent(trace: Trace, indices: range) -> Interval:
    """Span from the first of these steps on any rank to the end of the last."""
    chosen = [w for rank in trace.ranks for i, w in enumerate(analysis.windows(trace, rank)) if i in indices]
    return min(b for b, _ in chosen), max(e for _, e in chosen)


def draw(trace: Trace, steps: Sequence[Step], indices: range, path: Path) -> None:
    """Write the picture of the steps `indices`; its key numbers are of all `steps`.

    Raises:
        OSError: the file cannot be written.

    """
    ranks = trace.ranks
    height = 2.2 + 0.85 * len(ranks)
    figure = Figure(figsize=(12, height), dpi=130, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.07, 0.92 / height, 0.82, 0.85 * len(ranks) / height))
    lanes = _Lanes(axes, *_extent(trace, indices))
    for position, rank in enumerate(ranks):
        _draw_rank(lanes, trace, rank, len(ranks) - 1 - position, steps)
    _name_steps(lanes, trace, indices, len(ranks))
    axes.set_xlim(0, lanes.x(lanes.end))
    axes.set_ylim(0, len(ranks))
    axes.set_yticks([len(ranks) - 0.5 - i for i in range(len(ranks))], [f"rank {rank}" for rank in ranks])
    axes.tick_params(axis="y", length=0, labelsize=10, labelcolor=_TEXT)
    axes.tick_params(axis="x", labelsize=8.5, labelcolor=_TEXT)
    axes.set_xlabel(f"time ({lanes.unit_name})", fontsize=9, color=_TEXT)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    _titles(figure, trace, steps, height)
    handles = [Patch(facecolor=color, label=label) for label, color in _LEGEND]
    handles.append(
        Patch(facecolor="white", edgecolor=_EXPOSED, hatch="//////", label="waiting in synchronize")
    )
    figure.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0.06, 0.0), ncols=5, frameon=False, fontsize=8.5
    )
    figure.savefig(path)
