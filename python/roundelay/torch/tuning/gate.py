"""Rates techniques for buckets by a cost model, and makes plans of them. Pure.

A bucket of b bytes takes ``calls * alpha + latency + ratio * b * beta + passes * b / copy`` seconds. alpha
and beta were measured on the process set (tuning/calibration.py); ``copy`` is the rate of a copy in a rank's
memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from roundelay.buckets import Link

Plan = tuple[int, ...]  # for each bucket the number of its candidate

DENSE = 0  # the number of the candidate that is always there
MOST_MIXED = 247  # buckets of a mixed plan: a proposal to the ranks has a byte for each


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """What a technique costs beside a dense allreduce, which is one call, ratio 1 and no pass."""

    calls: float  # operations that follow each other
    ratio: float  # of the bytes that travel to those of the gradients
    passes: float  # copies of the bucket that take as long as its own passes
    latency: float = (
        0.0  # seconds that one takes longer than a dense allreduce, however small; may be negative
    )


DENSE_COST = Cost(1, 1, 0)


def seconds(cost: Cost, size: int, link: Link) -> float:
    """Return the time of a bucket of ``size`` bytes."""
    latency = max(0.0, cost.calls * link.alpha + cost.latency)
    return latency + size * (cost.ratio * link.beta + cost.passes / link.copy)


def durations(
    plan: Plan, sizes: Sequence[int], costs: Sequence[Cost | None], link: Link | None
) -> list[float] | None:
    """Predict each bucket's time; None: the model does not know one of the plan's techniques."""
    found = []
    for number, size in zip(plan, sizes, strict=True):
        cost = costs[number]
        if cost is None or link is None:
            return None
        found.append(seconds(cost, size, link))
    return found


def plans(
    sizes: Sequence[int], costs: Sequence[Cost | None], mixed: Sequence[bool], link: Link | None
) -> list[Plan]:
    """Return the plans for such buckets: each candidate for all of them, dense first, and the best mixture.

    costs: of the candidates, dense first; one with the same cost is dense by another name, and has no plan.
    mixed: whether one may stand beside others, bucket by bucket.
    """
    others = [number for number, cost in enumerate(costs) if number != DENSE and cost != DENSE_COST]
    found = [(number,) * len(sizes) for number in (DENSE, *others)]
    if link is not None and len(sizes) <= MOST_MIXED:
        best = []
        for size in sizes:
            known = (
                (seconds(cost, size, link), number)
                for number, cost in enumerate(costs)
                if cost is not None and mixed[number]
            )
            best.append(min(known)[1])
        found.append(tuple(best))
    return list(dict.fromkeys(found))


class Watch:
    """Notices that steps take another time than before, for long. Pure."""

    STEPS = 50  # of a window
    WINDOWS = 3  # in a row
    CHANGE = 0.25  # of the time that was usual

    def __init__(self, usual: float) -> None:
        self._usual = usual
        self._window: list[float] = []
        self._changed = 0

    def step_over(self, duration: float) -> bool:
        """Record a step's seconds. Returns whether the last windows all differ from what was usual."""
        self._window.append(duration)
        if len(self._window) < self.STEPS:
            return False
        median = sorted(self._window)[self.STEPS // 2]
        self._window.clear()
        self._changed = self._changed + 1 if abs(median / self._usual - 1) > self.CHANGE else 0
        return self._changed >= self.WINDOWS
