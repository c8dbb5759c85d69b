"""Computes a job's figures from a trace: pure functions over events. All times are microseconds."""

from __future__ import annotations

import dataclasses
import math
import statistics
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence

from roundelay._internal.spelling.techniques import for_users
from roundelay.timeline import overlap
from roundelay.timeline.events import Event, Trace
from roundelay.timeline.intervals import Interval, clip, intersect, subtract, total, union

# The rows of csrc/timeline/timeline.h, Row.
TRAINING, COPY, COLLECTIVE, NEGOTIATION, ENQUEUE, GPU, SECOND_COLLECTIVE = 1, 2, 3, 4, 5, 6, 7
# Inside nodes, and between them. Each level has a row for the first operation under way and for the second.
INSIDE, BETWEEN = (8, 10), (9, 11)
_MOVING = (COPY, COLLECTIVE, SECOND_COLLECTIVE, GPU)  # bytes move in these; a GPU moves enqueued bytes later
_OPERATIONS = (COLLECTIVE, SECOND_COLLECTIVE, ENQUEUE)  # each fused operation has a span


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One training step of one rank."""

    rank: int
    index: int
    begin: float
    end: float
    computing: float  # the program did not wait for communication: it loaded data, ran the model, stepped
    backward: float  # the part of computing in which it computed gradients
    under_way: float  # an operation was between its submission and its end
    exposed: float  # the part of under_way in which the program waited
    operations: int  # fused operations that began in the step
    tensors: int  # a bucket counts as its gradients
    bytes: int

    @property
    def duration(self) -> float:
        """The time from the end of the step before (the first: from its backward) to its own end."""
        return self.end - self.begin


@dataclasses.dataclass(frozen=True, slots=True)
class Fusion:
    """The numbers of tensors (a bucket counts as its gradients) and of the operations that reduced them."""

    tensors: int
    operations: int
    bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Levels:
    """The time of a rank's allreduces inside the nodes and between them."""

    rank: int
    inside: float
    between: float
    both: float  # both levels were busy, with one allreduce or two
    overlapped: float  # the part of `both` in which one was inside while another one was between


@dataclasses.dataclass(frozen=True, slots=True)
class TechniqueUse:
    """The operations that one technique carried out, the bytes of their gradients, and the bytes sent."""

    technique: str
    operations: int
    bytes: int
    called_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Straggler:
    """The tensors that a rank was the last to report, and the time that the first rank had waited by then."""

    rank: int
    times: int
    median: float  # time of the first rank's waiting
    longest: float


def _pairs(events: Iterable[Event]) -> list[Interval]:
    return [(e.begin, e.end) for e in events]


def backward(trace: Trace, rank: int) -> list[Interval]:
    """Return the intervals of gradient computation: the rank was in a backward pass and did not wait."""
    return subtract(_pairs(trace.spans(rank, TRAINING, "backward")), waiting(trace, rank))


def waiting(trace: Trace, rank: int) -> list[Interval]:
    """Return the intervals in which the rank's program waited for communication."""
    return union(_pairs(trace.spans(rank, TRAINING, "synchronize")))


def moving(trace: Trace, rank: int) -> list[Interval]:
    """Return the intervals in which the rank, or its GPU, moved bytes: it reduced or copied."""
    return union([pair for row in _MOVING for pair in _pairs(trace.spans(rank, row))])


def under_way(trace: Trace, rank: int) -> list[Interval]:
    """Return the intervals between submission and end of the rank's operations, on its GPU too."""
    return union([*trace.tensors(rank), *moving(trace, rank)])


def across_steps(trace: Trace, rank: int) -> list[Interval]:
    """Return when each tensor was under way that was submitted in one step and complete in a later one."""
    ends = [end for _, end in windows(trace, rank)[:-1]]
    every = sorted(trace.tensors(rank))
    return [(begin, end) for begin, end in every if bisect_right(ends, begin) < bisect_left(ends, end)]


def exposed(trace: Trace, rank: int) -> list[Interval]:
    """Return the intervals in which the program only waited while an operation was under way."""
    return intersect(under_way(trace, rank), waiting(trace, rank))


def windows(trace: Trace, rank: int) -> list[Interval]:
    """Return the rank's steps as intervals.

    A step begins where the one before ended, the first one with its backward. It ends with step(). A trace
    without step() is cut where backwards begin. A trace without training is one step.
    """
    starts = [e.begin for e in trace.spans(rank, TRAINING, "backward")]
    steps_ = trace.spans(rank, TRAINING, "step")
    if steps_:
        ends = [e.end for e in steps_]
        begins = [min([*starts, steps_[0].begin]), *ends[:-1]]
        return list(zip(begins, ends, strict=True))
    marks = [e for e in trace.events if e.phase == "X" and e.rank == rank]
    if not marks:
        return []
    last = max(e.end for e in marks)
    starts = starts or [min(e.begin for e in marks)]
    return list(zip(starts, [*starts[1:], last], strict=True))


def steps(trace: Trace) -> list[Step]:
    """Measure every step of every rank, by rank and time."""
    found = []
    for rank in trace.ranks:
        inside, busy, open_, waits = (of(trace, rank) for of in (backward, under_way, exposed, waiting))
        operations = [span for row in _OPERATIONS for span in trace.spans(rank, row)]
        for index, (begin, end) in enumerate(windows(trace, rank)):
            of_step = fusion(e for e in operations if begin <= e.begin < end)
            found.append(
                Step(
                    rank=rank,
                    index=index,
                    begin=begin,
                    end=end,
                    computing=end - begin - total(clip(waits, begin, end)),
                    backward=total(clip(inside, begin, end)),
                    under_way=total(clip(busy, begin, end)),
                    exposed=total(clip(open_, begin, end)),
                    operations=of_step.operations,
                    tensors=of_step.tensors,
                    bytes=of_step.bytes,
                )
            )
    return found


def fusion(events: Iterable[Event]) -> Fusion:
    """Sum up the fused operations among some events of one rank."""
    tensors = operations = size = 0
    for event in events:
        is_operation = event.phase == "X" and event.row in _OPERATIONS and event.name != "barrier"
        if is_operation and "tensors" in event.args:  # the calls of a technique have none
            tensors += int(event.args["tensors"])
            operations += 1
            size += int(event.args.get("bytes", 0))
    return Fusion(tensors, operations, size)


def levels(trace: Trace, begin: float = -math.inf, end: float = math.inf) -> list[Levels]:
    """Measure the levels of every rank whose allreduces went over them, between two moments."""

    def busy(rank: int, row: int) -> list[Interval]:
        return clip(_pairs(trace.spans(rank, row)), begin, end)

    found = []
    for rank in trace.ranks:
        inside, between = ([busy(rank, row) for row in rows] for rows in (INSIDE, BETWEEN))
        all_inside, all_between = (union(pair for row in rows for pair in row) for rows in (inside, between))
        if not all_between:
            continue
        both = intersect(all_inside, all_between)
        overlapped = [*intersect(inside[0], between[1]), *intersect(inside[1], between[0])]
        times = (total(times) for times in (all_inside, all_between, both, overlapped))
        found.append(Levels(rank, *times))
    return found


def techniques(trace: Trace, verbose: bool = False) -> list[TechniqueUse]:
    """Sum up the first rank's operations by technique; empty if all of them were dense.

    A technique has the text of a strategy. verbose: it has the core's, with what was computed for a bucket.
    """
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in _OPERATIONS if trace.ranks else ():
        for event in trace.spans(trace.ranks[0], row):
            if "technique" in event.args:
                size, called = int(event.args["bytes"]), int(event.args["called_bytes"])
                core = str(event.args["technique"])
                own = sums[core if verbose else for_users(core)]
                for index, number in enumerate((1, size, called)):
                    own[index] += number
    return [TechniqueUse(text, *numbers) for text, numbers in sorted(sums.items())]


def stragglers(trace: Trace) -> list[Straggler]:
    """Count how often each rank was last; the rank that was last most often comes first."""
    waits: dict[int, list[float]] = defaultdict(list)
    for event in trace.events:
        if event.name == "ready" and event.phase == "i":
            waits[int(event.args["last_rank"])].append(float(event.args["waited_us"]))
    found = [Straggler(rank, len(w), statistics.median(w), max(w)) for rank, w in waits.items()]
    return sorted(found, key=lambda s: (-s.times, s.rank))


def changes(trace: Trace) -> list[str]:
    """Return what the first rank says of an elastic job's generations (torch/_internal/resets.py)."""
    marks = trace.spans(trace.ranks[0], TRAINING) if trace.ranks else []
    return [event.name for event in marks if event.name.startswith("generation ")]


def pools(trace: Trace) -> list[str]:
    """Return the last two messages about each gradient pool."""
    said: dict[str, list[str]] = defaultdict(list)
    for rank in trace.ranks:
        for event in trace.spans(rank, TRAINING):
            pool, colon, _ = event.name.partition(": ")
            if colon and pool.startswith("pool of "):
                said[pool].append(event.name)
    return [text for texts in said.values() for text in texts[-2:]]


def mean(steps_: Sequence[Step], field: str) -> float:
    """Take the mean of one of Step's fields; 0 if there are no steps."""
    return statistics.fmean(getattr(s, field) for s in steps_) if steps_ else 0.0


def hidden_share(steps_: Sequence[Step]) -> float | None:
    """Return the hidden part of the mean time under way, 0 to 1; None where nothing was under way."""
    return overlap.hidden_share(mean(steps_, "under_way"), mean(steps_, "exposed"))
