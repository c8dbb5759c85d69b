"""The rows of a timeline's picture."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex

from roundelay.timeline import analysis
from roundelay.timeline.analysis import BETWEEN, COLLECTIVE, INSIDE, TRAINING
from roundelay.timeline.events import Event, Trace
from roundelay.timeline.picture import paint

FIRST, SECOND = "#6a4c93", "#e09f3e"


def _span(rank: int, row: int, name: str, begin: float, end: float) -> Event:
    return Event("X", name, rank, row, begin, end - begin, {})


def _one_rank(rank: int, over_levels: bool) -> list[Event]:
    """A step of 100 us. One allreduce is on the wire while the other one is in the node."""
    events = [
        _span(rank, TRAINING, "backward", 0, 20),
        _span(rank, COLLECTIVE, "allreduce", 10, 90),
        _span(rank, TRAINING, "synchronize", 20, 90),
        _span(rank, TRAINING, "step", 90, 100),
    ]
    levels = [
        _span(rank, INSIDE[0], "in the node", 10, 20),
        _span(rank, BETWEEN[0], "between nodes", 20, 60),
        _span(rank, INSIDE[1], "in the node", 30, 45),
        _span(rank, BETWEEN[1], "between nodes", 45, 90),  # at first beside the first one
    ]
    return [*events, *(levels if over_levels else [])]


def _axes(ranks: int, over_levels: bool) -> Axes:
    trace = Trace([event for rank in range(ranks) for event in _one_rank(rank, over_levels)])
    return paint(trace, analysis.steps(trace), range(1)).axes[0]


def _rows(axes: Axes) -> list[tuple[str, float]]:
    """Returns the names of the rows and their heights, from the top."""
    names = [label.get_text() for label in axes.get_yticklabels()]
    return sorted(zip(names, map(float, axes.get_yticks()), strict=True), key=lambda row: -row[1])


Bar = tuple[float, float, float, float]  # begin, end, bottom, top


def _bars(axes: Axes, color: str, height: float) -> list[Bar]:
    """Returns the bars of a color in the row at a height."""
    found = []
    for bars in axes.collections:
        if isinstance(bars, PolyCollection) and to_hex(np.asarray(bars.get_facecolor())[0].tolist()) == color:
            for path in bars.get_paths():
                box = path.get_extents()
                if box.y0 - 0.01 < height < box.y1 + 0.01:
                    found.append((round(box.x0, 6), round(box.x1, 6), box.y0, box.y1))
    return found


def test_each_level_has_a_row_below_its_rank() -> None:
    axes = _axes(2, over_levels=True)
    rows = _rows(axes)
    names = ["rank 0", "in the node", "between nodes", "rank 1", "in the node", "between nodes"]
    assert [name for name, _ in rows] == names
    spans = {"in the node": [(10, 20), (30, 45)], "between nodes": [(20, 60), (45, 90)]}
    for name, height in rows:
        both = [*_bars(axes, FIRST, height), *_bars(axes, SECOND, height)]
        assert [bar[:2] for bar in both] == spans.get(name, [])
        if both:
            first, second = both
            assert second[2] < second[3] <= first[2] + 1e-9 < first[3]  # neither covers the other
    bottom, top = axes.get_ylim()
    assert all(bottom < height < top for _, height in rows)


def test_without_levels_a_rank_is_one_row() -> None:
    axes = _axes(3, over_levels=False)
    assert _rows(axes) == [("rank 0", 2.5), ("rank 1", 1.5), ("rank 2", 0.5)]
    assert not any(_bars(axes, color, 0.5) for color in (FIRST, SECOND))


def test_the_title_of_steps_that_compute_nothing() -> None:
    events = [event for event in _one_rank(0, over_levels=True) if event.name not in ("backward", "step")]
    trace = Trace([*events, _span(0, TRAINING, "step", 0, 100)])
    figure = paint(trace, analysis.steps(trace), range(1))
    texts = [text.get_text() for text in figure.texts]
    assert "60% of an allreduce's time in the node lies under another one's wire time" in texts


def _submitted(rank: int, number: int, begin: float, end: float) -> list[Event]:
    moments = (("submit", begin), ("complete", end))
    return [Event("n", name, rank, 0, at, 0, {}, f"{rank}.{number}") for name, at in moments]


def test_what_is_under_way_across_steps_has_a_row() -> None:
    later = [
        _span(0, TRAINING, "backward", 100, 150),
        _span(0, TRAINING, "step", 150, 200),
    ]
    operations = [*_submitted(0, 1, 10, 90), *_submitted(0, 2, 95, 180), *_submitted(0, 3, 100, 160)]
    trace = Trace([*_one_rank(0, over_levels=True), *later, *operations])
    axes = paint(trace, analysis.steps(trace), range(2)).axes[0]
    assert [name for name, _ in _rows(axes)] == ["rank 0", "in the node", "between nodes", "across steps"]
    height = _rows(axes)[-1][1]
    assert [bar[:2] for bar in _bars(axes, "#2a9d8f", height)] == [(95, 180)]
    assert axes.get_ylim()[0] < height
