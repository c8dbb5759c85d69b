"""Rates techniques for buckets by a cost model, and makes plans of them. Pure.

A bucket of b bytes takes ``calls * alpha + latency + ratio * b * beta + passes * b / copy`` seconds. alpha
and beta were measured on the process set (tuning/calibration.py); ``copy`` is the rate of a copy in a rank's
memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from roundelay.tuning.buckets import Link

Plan = tuple[int, ...]  # each bucket's number of its candidate

DENSE = 0  # the number of the candidate that is always there
MOST_MIXED = 247  # buckets of a mixed plan: a proposal to the ranks has a byte for each


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """The costs of a technique. Those of a dense allreduce are one call, ratio 1 and no pass."""

    calls: float  # operations that follow each other
    ratio: float  # the bytes that travel, divided by those of the gradients
    passes: float  # copies of the bucket that take as long as its own passes
    latency: float = 0.0  # seconds by which its messages take longer; negative: they take less


DENSE_COST = Cost(1, 1, 0)


def link_of(cost: Cost, link: Link) -> Link:
    """Return the link over which a dense bucket takes as long as one with this cost over ``link``."""
    alpha = max(0.0, cost.calls * link.alpha + cost.latency)
    return link._replace(alpha=alpha, beta=cost.ratio * link.beta + cost.passes / link.copy)


def seconds(cost: Cost, size: int, link: Link) -> float:
    """Return the time of a bucket of ``size`` bytes."""
    own = link_of(cost, link)
    return own.alpha + size * own.beta


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

    costs: those of the candidates, dense first. One with the same cost is dense by another name, and has no
    plan. mixed: True for each candidate that may take some buckets while others take the rest.
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

    STEPS = 50  # steps of a window
    WINDOWS = 3  # windows in a row that must differ
    CHANGE = 0.25  # the least difference, as a part of the usual time

    def __init__(self, usual: float) -> None:
        self._usual = usual
        self._window: list[float] = []
        self._changed = 0

    def step_over(self, duration: float) -> bool:
        """Record a step's seconds. Return whether the last windows all differ from the usual duration."""
        self._window.append(duration)
        if len(self._window) < self.STEPS:
            return False
        median = sorted(self._window)[self.STEPS // 2]
        self._window.clear()
        self._changed = self._changed + 1 if abs(median / self._usual - 1) > self.CHANGE else 0
        return self._changed >= self.WINDOWS
