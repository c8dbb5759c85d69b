"""Draws a few steps of a job: each rank is a strip, with computation above communication.

Where allreduces went over levels, the strip is taller: below are a row for the inside of the node and one
for the wire between nodes. Two allreduces may be under way at once; each has a colour. A further row has what
was under way from one step to another.

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
_FIRST, _SECOND = "#6a4c93", "#e09f3e"  # the allreduces under way on levels
_ACROSS = "#2a9d8f"  # under way from one step to another
# Each part of a strip has a bottom and a height. Further rows lie below it.
_COMPUTES, _UNDER_WAY, _MOVES = (0.50, 0.36), (0.20, 0.26), (0.10, 0.08)
_LEVELS = (("in the node", analysis.INSIDE), ("between nodes", analysis.BETWEEN))
_ACROSS_STEPS = "across steps"
_ROW, _ROW_EVERY = 0.22, 0.28  # the height of a further row, and of one with its gap
_LEFT = 0.09  # where the axes begin, in figure widths
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
_LEVEL_LEGEND: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("one allreduce", _FIRST, {}),
    ("another", _SECOND, {}),
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


def _further_rows(trace: Trace) -> dict[str, tuple[float, float]]:
    """Return the rows below each strip, by name: bottom and height."""
    names = [name for name, _ in _LEVELS] if analysis.levels(trace) else []
    if any(analysis.across_steps(trace, rank) for rank in trace.ranks):
        names.append(_ACROSS_STEPS)
    return {name: (0.04 - _ROW_EVERY * (place + 1), _ROW) for place, name in enumerate(names)}


def _bottoms(trace: Trace) -> dict[int, float]:
    """Return the bottom of each rank's strip, above its further rows; the first rank is at the top."""
    rows = len(_further_rows(trace))
    below = 0.04 + _ROW_EVERY * rows if rows else 0.0
    return {rank: below + place * (1 + below) for place, rank in enumerate(reversed(trace.ranks))}


def _name_rows(axes: Axes, trace: Trace) -> None:
    names = {}
    for rank, strip in _bottoms(trace).items():
        names[strip + 0.5] = f"rank {rank}"
        further = _further_rows(trace).items()
        names |= {strip + bottom + tall / 2: name for name, (bottom, tall) in further}
    axes.set_yticks(list(names), list(names.values()))
    axes.tick_params(axis="y", length=0, labelsize=9, labelcolor=_TEXT)


def _draw_further(strips: _Strips, trace: Trace, rank: int, strip: float) -> None:
    rows = _further_rows(trace)
    if _ACROSS_STEPS in rows:
        across = analysis.across_steps(trace, rank)
        strips.bars(across, strip, rows[_ACROSS_STEPS], _ACROSS, edgecolor="white")
    for name, tracks in _LEVELS:
        if name not in rows:
            continue
        bottom, tall = rows[name]
        # Both may be on one level at once: each has half of the row.
        halves = ((bottom + tall / 2, tall / 2), (bottom, tall / 2))
        for track, color, half in zip(tracks, (_FIRST, _SECOND), halves, strict=True):
            strips.bars([(e.begin, e.end) for e in trace.spans(rank, track)], strip, half, color)


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
    _draw_further(strips, trace, rank, strip)
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


def _title(trace: Trace, shown: Sequence[Step]) -> str:
    over_levels = analysis.levels(trace, min(s.begin for s in shown), max(s.end for s in shown))
    inside = sum(one.inside for one in over_levels)
    if inside and not analysis.mean(shown, "backward"):  # nothing could hide communication
        share = sum(one.overlapped for one in over_levels) / inside
        return f"{share:.0%} of an allreduce's time in the node lies under another one's wire time"
    hidden = analysis.hidden_share(shown)
    if hidden is None:
        return "No communication in these steps"
    return f"{hidden:.0%} of communication is hidden in these steps"


def _job(trace: Trace, steps: Sequence[Step]) -> str:
    first = [s for s in steps if s.rank == trace.ranks[0]]
    tensors, operations = (analysis.mean(first, field) for field in ("tensors", "operations"))
    size = bytes_text(analysis.mean(first, "bytes"))
    what = size if tensors == operations else f"{tensors:.0f} tensors, {size}"
    words = [f"{what} in {operations:.0f} operations a step"]
    late = analysis.stragglers(trace)
    if late and len(trace.ranks) > 1:
        share = f"{late[0].times} of {sum(s.times for s in late)} times"
        words.append(f"rank {late[0].rank} was last {share}, by {time_text(late[0].median)}")
    return "; ".join(words)


def _titles(figure: Figure, trace: Trace, steps: Sequence[Step], indices: range, height: float) -> None:
    def write(down: float, text: str, **how: Any) -> None:
        figure.text(_LEFT, 1 - down / height, text, color=_TEXT, va="center", **how)

    write(0.36, _title(trace, [s for s in steps if s.index in indices]), fontsize=14, fontweight="bold")
    numbers = sorted({s.index for s in steps})
    of = f"All steps {numbers[0]} to {numbers[-1]}" if len(numbers) > len(indices) else "Each step"
    write(0.68, f"{of}: {headline(trace, steps)}", fontsize=9.5)
    write(0.92, _job(trace, steps), fontsize=9.5)


def _extent(trace: Trace, indices: range) -> Interval:
    """Return the interval from the first of these steps on any rank to the end of the last."""
    chosen = [w for rank in trace.ranks for i, w in enumerate(analysis.windows(trace, rank)) if i in indices]
    return min(b for b, _ in chosen), max(e for _, e in chosen)


def paint(trace: Trace, steps: Sequence[Step], indices: range) -> Figure:
    """Make the picture of the steps `indices`. Title and notes describe these, the subtitles all steps."""
    bottoms = _bottoms(trace)
    top = max(bottoms.values()) + 1
    height = 2.2 + 0.85 * top
    figure = Figure(figsize=(12, height), dpi=130, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((_LEFT, 0.92 / height, 0.89 - _LEFT, 0.85 * top / height))
    strips = _Strips(axes, *_extent(trace, indices))
    for rank, strip in bottoms.items():
        _draw_rank(strips, trace, rank, strip, [s for s in steps if s.index in indices])
    _name_steps(strips, trace, indices, top)
    _name_rows(axes, trace)
    axes.set_xlim(0, strips.x(strips.end))
    axes.set_ylim(0, top)
    axes.tick_params(axis="x", labelsize=8.5, labelcolor=_TEXT)
    axes.set_xlabel(f"time ({strips.unit_name})", fontsize=9, color=_TEXT)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    _titles(figure, trace, steps, indices, height)
    legend = [*_LEGEND, *(_LEVEL_LEGEND if analysis.levels(trace) else ())]
    if _ACROSS_STEPS in _further_rows(trace):
        legend.append(("under way across steps", _ACROSS, {}))
    figure.legend(
        handles=[Patch(facecolor=color, label=label, **how) for label, color, how in legend],
        loc="lower left",
        bbox_to_anchor=(_LEFT - 0.01, 0.0),
        ncols=len(legend),
        frameon=False,
        fontsize=8.5,
        columnspacing=1.3,
    )
    return figure


def draw(trace: Trace, steps: Sequence[Step], indices: range, path: Path) -> None:
    """Write the picture of paint().

    Raises:
        OSError: the file cannot be written.

    """
    paint(trace, steps, indices).savefig(path)
