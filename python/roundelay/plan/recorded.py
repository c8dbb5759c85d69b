"""Reads a step from a timeline: gradients with their sizes and ready times, and the time of computing.

The clock of a step stands still while the rank waits for communication (analysis.waiting), so that it counts
the rank's own work. Forward ends with the first gradient, because nothing marks the beginning of backward.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from roundelay.plan.machines import age
from roundelay.plan.units import PlanError
from roundelay.plan.workload import Gradient, Workload
from roundelay.timeline import analysis
from roundelay.timeline.events import Event, Trace, read
from roundelay.timeline.intervals import Interval, clip, total

_LEAST = 3  # the fewest steps of a rank that a prediction needs
_WARM = 2  # the first steps of a rank, which do not count if there are enough: caches and pools are new
_US = 1e-6
_NORMAL = 1.4826  # standard deviation of a normal distribution with median absolute deviation 1
CURE = "record one with: roundelayrun -np 1 --timeline-filename job.json python train.py"


@dataclasses.dataclass(frozen=True, slots=True)
class Recording:
    """The median step of a timeline, and the differences between steps and ranks."""

    workload: Workload
    jitter: float  # standard deviation of the logarithm of a step's time of computing
    ranks: int
    steps: tuple[int, ...]  # the numbers, in the file, of the steps that were used

    def describe(self) -> str:
        """Return a text that tells which steps were used."""
        return (
            f"steps {self.steps[0]} to {self.steps[-1]} ({len(self.steps)} of {self.ranks} "
            f"rank{'s' if self.ranks != 1 else ''}, medians)"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Step:
    """One rank's step in seconds of its own work."""

    index: int
    forward: float
    backward: float
    update: float
    ready: dict[str, float]

    @property
    def compute(self) -> float:
        return self.forward + self.backward + self.update


def load(path: Path, samples: float, steps: slice = slice(None)) -> Recording:
    """Read a timeline. samples: of one rank in a step. steps: those to use.

    PlanError: the file cannot be read, or has too little for a prediction.
    """
    try:
        trace = read(path)
    except OSError as error:
        raise PlanError(f"cannot read '{path}': {error.strerror}") from None
    except ValueError as error:
        raise PlanError(f"'{path}': {error}; {CURE}") from None
    try:
        recording = from_trace(trace, steps)
    except PlanError as error:
        raise PlanError(f"'{path}' {error}; {CURE}") from None
    source = f"{path} ({age(path)}), {recording.describe()}"
    workload = dataclasses.replace(recording.workload, name=path.stem, samples=samples, source=source)
    return dataclasses.replace(recording, workload=workload)


def from_trace(trace: Trace, chosen: slice = slice(None)) -> Recording:
    """Take medians over ranks and steps. PlanError: too few steps have all gradients."""
    marks = _marks(trace)
    if not marks:
        raise PlanError("has no gradients: no DistributedOptimizer has reduced or marked one")
    names = frozenset(marks)
    found: list[_Step] = []
    for rank in trace.ranks:
        reader = _Reader(trace, rank, names)
        windows = list(enumerate(analysis.windows(trace, rank)))[chosen]
        whole = [step for index, window in windows if (step := reader.step(index, window))]
        found += whole[_WARM:] if len(whole) >= _WARM + _LEAST else whole
    ranks = len(trace.ranks)
    if len(found) < _LEAST * ranks:
        raise PlanError(f"has {len(found)} whole steps of {ranks} ranks, but needs {_LEAST} of each")
    return Recording(_workload(marks, found), _jitter(found), ranks, tuple(sorted({s.index for s in found})))


def _marks(trace: Trace) -> dict[str, Event]:
    """Return a mark of each gradient that comes in most steps, by name."""
    times: Counter[str] = Counter()
    last: dict[str, Event] = {}
    for event in trace.events:
        if event.phase == "i" and event.name == "gradient" and "elements" in event.args:
            name = str(event.args["tensor"])
            times[name] += 1
            last[name] = event
    most = max(times.values(), default=0)
    return {name: last[name] for name, number in times.items() if 2 * number > most}


class _Reader:
    """Measures the steps of one rank."""

    def __init__(self, trace: Trace, rank: int, names: frozenset[str]) -> None:
        marks = [e for e in trace.events if e.rank == rank and e.phase == "i" and e.name == "gradient"]
        self._marks = sorted(marks, key=lambda event: event.begin)
        self._times = [event.begin for event in self._marks]
        self._backwards = trace.spans(rank, analysis.TRAINING, "backward")
        self._begins = [event.begin for event in self._backwards]
        self._waits = analysis.waiting(trace, rank)
        self._wait_ends = [end for _, end in self._waits]
        self._names = names

    def step(self, index: int, window: Interval) -> _Step | None:
        """Measure a step; None if it lacks gradients or its backward."""
        begin, end = window
        marks = self._marks[bisect_left(self._times, begin) : bisect_left(self._times, end)]
        ready = {str(event.args["tensor"]): event.begin for event in marks}
        backwards = self._backwards[bisect_left(self._begins, begin) : bisect_left(self._begins, end)]
        if not self._names <= ready.keys() or not backwards:
            return None
        waits = clip(
            self._waits[bisect_left(self._wait_ends, begin) : bisect_left(self._wait_ends, end) + 1],
            begin,
            end,
        )

        def work(start: float, stop: float) -> float:
            return _US * max(0.0, stop - start - total(clip(waits, start, stop)))

        first = min(ready[name] for name in self._names)
        over = max(event.end for event in backwards)
        return _Step(
            index,
            work(begin, first),
            work(first, over),
            work(over, end),
            {name: work(first, ready[name]) for name in self._names},
        )


def _workload(marks: dict[str, Event], steps: Sequence[_Step]) -> Workload:
    gradients = []
    for name, mark in marks.items():
        elements, rows = int(mark.args["elements"]), int(mark.args.get("rows", 1))
        ready = statistics.median(step.ready[name] for step in steps)
        gradients.append(Gradient(name, elements, ready, (rows, max(1, elements // max(1, rows)))))
    gradients.sort(key=lambda gradient: gradient.ready)
    element = max(
        1, round(sum(int(m.args["bytes"]) for m in marks.values()) / sum(g.elements for g in gradients))
    )
    backward = statistics.median(step.backward for step in steps)
    return Workload(
        "timeline",
        tuple(gradients),
        forward=statistics.median(step.forward for step in steps),
        backward=max(backward, gradients[-1].ready),
        update=statistics.median(step.update for step in steps),
        element=element,
    )


def _jitter(steps: Sequence[_Step]) -> float:
    """Estimate the jitter from the median deviation: a few slow steps of a busy machine do not count."""
    logs = [math.log(max(step.compute, 1e-9)) for step in steps]
    middle = statistics.median(logs)
    return _NORMAL * statistics.median(abs(value - middle) for value in logs)
