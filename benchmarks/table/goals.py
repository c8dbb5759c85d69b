"""The goals of the results. A goal below the floor of its work is raised to the floor. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks import data_cache, show
from benchmarks import levels as ways_over_levels
from benchmarks.shapes import resnet50
from benchmarks.table import (
    alone,
    averaging,
    cache,
    levels,
    small,
    start,
    straggler,
    submit,
    tensors,
    threads,
    topk,
    train,
)
from benchmarks.table.allreduce import OWN_FP32
from benchmarks.table.line import Goal, Line, missing
from benchmarks.table.result import Estimate, Result

RAISED = "raised to the floor: the work takes that by itself"


@dataclass(frozen=True)
class Aim:
    """A goal: `line` compares a result with it, and tells whether the goal had to be raised."""

    work: str
    line: Callable[[Result], tuple[Line, bool]]


def times_as_fast(work: str, peer: str, least: float) -> Aim:
    """Require that many times the speed of the peer, or the highest possible speed."""

    def line(result: Result) -> tuple[Line, bool]:
        beside = result.peer(peer)
        if beside is None or beside.ratio is None:
            return missing(work, f"no {peer}"), False
        theirs = beside.cost.value
        most, raised = _allowed(result, theirs / least)
        return _line(result, peer, beside.cost, beside.ratio, "x", Goal(theirs / most)), raised

    return Aim(work, line)


def at_most(work: str, most: float) -> Aim:
    """Require at most that cost, or the least possible cost."""

    def line(result: Result) -> tuple[Line, bool]:
        limit, raised = _allowed(result, most)
        return _line(result, "", None, result.own, result.unit, Goal(limit, at_least=False)), raised

    return Aim(work, line)


def behind(work: str, peer: str, most: float) -> Aim:
    """Require at most that much more than the peer."""

    def line(result: Result) -> tuple[Line, bool]:
        beside = result.peer(peer)
        if result.own is None or beside is None:
            return missing(work, f"no {peer}"), False
        theirs = beside.cost.value
        limit, raised = _allowed(result, theirs + most)
        difference = Estimate(result.own.value - theirs)
        goal = Goal(limit - theirs, at_least=False)
        return _line(result, f"behind {peer}", beside.cost, difference, result.unit, goal), raised

    return Aim(work, line)


def times_the_floor(work: str, most: float) -> Aim:
    """Require at most that many times the cost of the work's floor."""

    def line(result: Result) -> tuple[Line, bool]:
        if result.over_floor is None:
            return missing(work, "no floor"), False
        goal = Goal(most, at_least=False)
        return _line(result, result.floor_is, result.floor, result.over_floor, "x", goal), False

    return Aim(work, line)


def above_the_floor(work: str, most: float) -> Aim:
    """Require at most that much more than the work's floor."""

    def line(result: Result) -> tuple[Line, bool]:
        if result.own is None or result.floor is None:
            return missing(work, "no floor"), False
        more = Estimate(result.own.value - result.floor.value)
        goal = Goal(most, at_least=False)
        return _line(result, f"above {result.floor_is}", result.floor, more, result.unit, goal), False

    return Aim(work, line)


def tail_at_most(work: str, most: float) -> Aim:
    """Require that the 99th percentile is at most that many medians."""

    def line(result: Result) -> tuple[Line, bool]:
        if result.own is None or result.tail is None:
            return missing(work, "no tail"), False
        median = result.own.value
        bounds = (bound and bound / median for bound in (result.tail.low, result.tail.high))
        ratio = Estimate(result.tail.value / median, *bounds)
        return _line(result, "p99 by median", None, ratio, "x", Goal(most, at_least=False)), False

    return Aim(work, line)


def _allowed(result: Result, most: float) -> tuple[float, bool]:
    """Raise a limit to the floor's lower bound if necessary; return it, and whether it was raised.

    A floor above the measured time raises nothing.
    """
    if result.floor is None:
        return most, False
    least = result.floor.value if result.floor.low is None else result.floor.low
    if result.own is not None and result.own.value < least:
        return most, False
    return max(most, least), most < least


def _line(
    result: Result, peer: str, theirs: Estimate | None, measured: Estimate | None, unit: str, goal: Goal
) -> Line:
    if result.own is None or measured is None:
        return missing(result.work, "nothing")
    own, text = (cost and show.quantity(cost.value, result.unit) for cost in (result.own, theirs))
    value, low, high = measured.value, measured.low, measured.high
    return Line(result.work, own or "", peer, text or "", value, unit, goal, low, high)


def _small() -> list[Aim]:
    aims = []
    for size in small.SIZES:
        row, after = (small.work(size, how) for how in small.HOWS)
        aims += [times_as_fast(row, "Gloo", 20.0), at_most(row, 10e-6), tail_at_most(row, 10.0)]
        aims += [times_as_fast(after, "Gloo", 20.0), tail_at_most(after, 10.0)]
    return [*aims, *(behind(small.work(small.SIZES[0], how), "MPI", 8e-6) for how in small.HOWS)]


def _nodes() -> list[Aim]:
    works = [f"{size} fp32, 2 nodes of 2 ranks, 1 Gbit/s" for size in ("25 MiB", "100 MiB")]
    limits = {"bytes sent": 1.02, "time": 1.03}
    return [times_the_floor(f"{work}, {what}", most) for work in works for what, most in limits.items()]


_TENSORS = "161 tensors, 97.5 MiB"
_GRADIENTS = 4 * sum(math.prod(shape) for shape in resnet50())

AIMS: Sequence[Aim] = (
    times_as_fast("25 MiB fp32, 2 ranks", "Gloo", 10.0),
    times_as_fast("25 MiB fp32, 2 ranks", "MPI", 2.5),
    times_as_fast("25 MiB fp32, in the pool, 2 ranks", "MPI", 3.0),
    times_the_floor("25 MiB fp32, in the pool, 2 ranks", 1.2),
    *(times_as_fast(f"25 MiB {half}, 2 ranks", "Gloo", 15.0) for half in ("fp16", "bf16")),
    *(times_as_fast(f"25 MiB {half}, 2 ranks", OWN_FP32, 0.8) for half in ("fp16", "bf16")),
    times_as_fast("1 MiB fp32, 2 ranks", "Gloo", 12.0),
    times_as_fast("1 MiB fp32, 2 ranks", "MPI", 2.5),
    times_as_fast("25 MiB fp32, 4 ranks", "Gloo", 8.0),
    times_as_fast("25 MiB fp32, 4 ranks", "MPI", 3.5),
    times_as_fast("25 MiB fp32, in the pool, 4 ranks", "MPI", 5.0),
    times_the_floor("25 MiB fp32, in the pool, 4 ranks", 1.2),
    *_small(),
    times_as_fast(f"{_TENSORS}, 2 ranks", tensors.ASYNCHRONOUS, 6.0),
    times_as_fast(f"{_TENSORS}, 2 ranks", tensors.BUCKETS, 3.5),
    times_as_fast(f"{_TENSORS}, 4 ranks", tensors.ASYNCHRONOUS, 20.0),
    times_as_fast(f"{_TENSORS}, 4 ranks", tensors.BUCKETS, 4.0),
    *(
        times_as_fast(f"exposed in a step, {model}, 2 ranks", "DDP", 5.0)
        for model in ("ResNet-50", "GPT-2 small")
    ),
    times_as_fast(train.under_way("resnet50"), train.FULL, 1 / 0.55),
    at_most(submit.CALL, 3e-6),
    at_most(submit.HOOK, 3e-6),
    times_as_fast(submit.HALF_HOOK, submit.OWN_FP32, 1 / 1.3),
    times_the_floor(cache.FIRST, data_cache.FIRST_GOAL),
    *(times_the_floor(work, 1 / data_cache.LATER_GOAL) for work in (cache.LATER, cache.PLAIN)),
    times_the_floor(cache.MEMORY, 1.01),
    times_as_fast(threads.SUM, threads.ONE, 1.0),
    at_most(straggler.WAIT, 1e-3),
    at_most(alone.IDLE, 0.1),
    at_most(alone.MESSAGES, 0),
    at_most(alone.MEMORY, 1.1 * _GRADIENTS + (64 << 20)),
    at_most(start.NOTHING, 0.5),
    above_the_floor(start.FIRST_SUM, 0.5),
    *_nodes(),
    times_as_fast(levels.TIME, ways_over_levels.TWO, 1 / 0.6),
    times_as_fast(levels.TIME, ways_over_levels.RING, 1 / 0.75),
    times_the_floor(levels.TIME, 1.1),
    times_the_floor(levels.BYTES, 1.02),
    at_most(topk.TOP_K, 0.1),
    at_most(topk.CSC, 0.16),
    times_the_floor(averaging.work("daso-8-8"), 1.1),
)


def compared(results: Mapping[str, Result]) -> list[tuple[Line, bool]]:
    """Compare the results, by their work, with their goals. Skips results that are missing."""
    made = []
    for aim in AIMS:
        if (result := results.get(aim.work)) is not None:
            made.append((missing(aim.work, result.why), False) if result.why else aim.line(result))
    return made
