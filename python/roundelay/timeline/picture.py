"""Draws a few steps of a job: each rank is a strip, with computation above communication.

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

_BACKWARD, _STEP, _OTHER, _WAITING = "#3b6fb6", "#aab4c3", "#e4e6ea", "white"
_HIDDEN, _EXPOSED, _MOVING, _TEXT = "#57a773", "#d1362f", "#1f3d2b", "#30343b"
# Each part of a strip of height 1 has a bottom and a height.
_COMPUTES, _UNDER_WAY, _MOVES = (0.50, 0.36), (0.20, 0.26), (0.10, 0.08)
_HATCH: dict[str, Any] = {"edgecolor": _EXPOSED, "hatch": "//////"}
_LEGEND: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("forward, data", _OTHER, {}),
    ("backward", _BACKWARD, {}),
    ("waiting", _WAITING, _HATCH),
    ("optimizer", _STEP, {}),
    ("communication hidden", _HIDDEN, {}),
    ("exposed", _EXPOSED, {}),
    ("bytes move", _MOVING, {}),
)


def _scale(length: float) -> tuple[float, str]:
    """Return the axis's unit for so many microseconds: its microseconds and its name."""
    for limit, divisor, unit in ((2e3, 1.0, "us"), (5e6, 1e3, "ms")):
        if length < limit:
            return divisor, unit
    return 1e6, "s"


class _Strips:
    """Draws on the axes. Moments are microseconds; a strip is the height of its bottom."""

    def __init__(self, axes: Axes, begin: float, end: float) -> None:
        self.axes = axes
        self.begin, self.end = begin, end
        self.unit, self.unit_name = _scale(end - begin)

    def x(self, moment: float) -> float:
        return (moment - self.begin) / self.unit

    def bars(
        self, intervals: Sequence[Interval], strip: float, part: tuple[float, float], color: str, **how: Any
    ) -> None:
        boxes = [(self.x(b), (e - b) / self.unit) for b, e in clip(intervals, self.begin, self.end)]
        # A thin edge keeps short operations visible.
        edge: dict[str, Any] = {"linewidth": 0.4, "edgecolor": color, **how}
        self.axes.broken_barh(boxes, (strip + part[0], part[1]), facecolors=color, **edge)


def _draw_rank(strips: _Strips, trace: Trace, rank: int, strip: float, steps: Sequence[Step]) -> None:
    windows = analysis.windows(trace, rank)
    open_ = analysis.exposed(trace, rank)
    waits = analysis.waiting(trace, rank)
    optimizer = [(e.begin, e.end) for e in trace.spans(rank, analysis.TRAINING, "step")]
    strips.bars(subtract(windows, waits), strip, _COMPUTES, _OTHER)
    strips.bars(subtract(optimizer, waits), strip, _COMPUTES, _STEP)
    strips.bars(analysis.backward(trace, rank), strip, _COMPUTES, _BACKWARD)
    strips.bars(waits, strip, _COMPUTES, _WAITING, linewidth=0.8, **_HATCH)
    strips.bars(subtract(analysis.under_way(trace, rank), open_), strip, _UNDER_WAY, _HIDDEN)
    strips.bars(open_, strip, _UNDER_WAY, _EXPOSED)
    strips.bars(analysis.moving(trace, rank), strip, _MOVES, _MOVING)
    for _, end in windows:
        if strips.begin <= end <= strips.end:
            strips.axes.plot([strips.x(end)] * 2, [strip + 0.04, strip + 0.92], color=_TEXT, linewidth=0.9)
    own = [s for s in steps if s.rank == rank]
    cost, all_ = (time_text(analysis.mean(own, field)) for field in ("exposed", "under_way"))
    note = f"exposed {cost}\nof {all_} a step"
    strips.axes.annotate(
        note, (1.01, strip + 0.5), xycoords=("axes fraction", "data"), va="center", fontsize=8.5, color=_TEXT
    )


def _name_steps(strips: _Strips, trace: Trace, indices: range, top: float) -> None:
    for index, (begin, end) in enumerate(analysis.windows(trace, trace.ranks[0])):
        if index in indices:
            middle = (max(begin, strips.begin) + min(end, strips.end)) / 2
            strips.axes.text(
                strips.x(middle), top, f"step {index}", ha="center", va="bottom", fontsize=9, color=_TEXT
            )


def _title(shown: Sequence[Step]) -> str:
    hidden = analysis.hidden_share(shown)
    if hidden is None:
        return "No communication in these steps"
    return f"{hidden:.0%} of communication is hidden in these steps"


def _job(trace: Trace, steps: Sequence[Step]) -> str:
    first = [s for s in steps if s.rank == trace.ranks[0]]
    tensors, operations = (analysis.mean(first, field) for field in ("tensors", "operations"))
    size = bytes_text(analysis.mean(first, "bytes"))
    # A bucket is one tensor: the number of tensors says nothing if only buckets were reduced.
    what = size if tensors == operations else f"{tensors:.0f} tensors, {size}"
    words = [f"{what} in {operations:.0f} operations a step"]
    late = analysis.stragglers(trace)
    if late and len(trace.ranks) > 1:
        share = f"{late[0].times} of {sum(s.times for s in late)} times"
        words.append(f"rank {late[0].rank} was last {share}, by {time_text(late[0].median)}")
    return "; ".join(words)


def _titles(figure: Figure, trace: Trace, steps: Sequence[Step], indices: range, height: float) -> None:
    def write(down: float, text: str, **how: Any) -> None:
        figure.text(0.07, 1 - down / height, text, color=_TEXT, va="center", **how)

    write(0.36, _title([s for s in steps if s.index in indices]), fontsize=14, fontweight="bold")
    numbers = sorted({s.index for s in steps})
    of = f"All steps {numbers[0]} to {numbers[-1]}" if len(numbers) > len(indices) else "Each step"
    write(0.68, f"{of}: {headline(trace, steps)}", fontsize=9.5)
    write(0.92, _job(trace, steps), fontsize=9.5)


def _extent(trace: Trace, indices: range) -> Interval:
    """Return the interval from the first of these steps on any rank to the end of the last."""
    chosen = [w for rank in trace.ranks for i, w in enumerate(analysis.windows(trace, rank)) if i in indices]
    return min(b for b, _ in chosen), max(e for _, e in chosen)


def draw(trace: Trace, steps: Sequence[Step], indices: range, path: Path) -> None:
    """Write the picture of the steps `indices`. Title and notes describe these, the subtitles all steps.

    Raises:
        OSError: the file cannot be written.

    """
    ranks = trace.ranks
    height = 2.2 + 0.85 * len(ranks)
    figure = Figure(figsize=(12, height), dpi=130, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.07, 0.92 / height, 0.82, 0.85 * len(ranks) / height))
    strips = _Strips(axes, *_extent(trace, indices))
    for position, rank in enumerate(ranks):
        _draw_rank(strips, trace, rank, len(ranks) - 1 - position, [s for s in steps if s.index in indices])
    _name_steps(strips, trace, indices, len(ranks))
    axes.set_xlim(0, strips.x(strips.end))
    axes.set_ylim(0, len(ranks))
    axes.set_yticks([len(ranks) - 0.5 - i for i in range(len(ranks))], [f"rank {rank}" for rank in ranks])
    axes.tick_params(axis="y", length=0, labelsize=10, labelcolor=_TEXT)
    axes.tick_params(axis="x", labelsize=8.5, labelcolor=_TEXT)
    axes.set_xlabel(f"time ({strips.unit_name})", fontsize=9, color=_TEXT)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    _titles(figure, trace, steps, indices, height)
    handles = [Patch(facecolor=color, label=label, **how) for label, color, how in _LEGEND]
    figure.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0.06, 0.0), ncols=7, frameon=False, fontsize=8.5
    )
    figure.savefig(path)
