"""Tries candidates on the training itself, and keeps the fastest. Pure.

Rank 0 measures, and the others do what it proposes. Every step ends with an agreement round among all ranks
(optimizer/gradient_sync.py), so rank 0's steps take as long as the others'.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

# The step in which a setting comes into use does not count, nor do so many after it: requests are not cached
# yet. A change from a technique that keeps gradients back takes some flush steps.
UNCOUNTED = 2
UNCOUNTED_LOSSY = 6


@dataclass(slots=True)
class Trial(Generic[T]):
    """One candidate, and the durations of its steps in seconds."""

    candidate: T
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of its steps."""
        return statistics.median(self.seconds)


class Trials(Generic[T]):
    """Tries each candidate twice, in order and in reverse: a drift of the machine's speed meets all alike.

    steps: the number of steps that count for each candidate, in both trials together. uncounted: first steps
    with a candidate, which do not count: requests are not cached yet, or gradients are flushed.
    """

    def __init__(self, candidates: Sequence[T], steps: int, uncounted: int) -> None:
        self.tried = [Trial(candidate) for candidate in candidates]
        self._waiting = [*self.tried, *reversed(self.tried)]
        self._each = -(-steps // 2)
        self._uncounted = uncounted
        self._steps = -1  # the number of steps with this candidate; -1: it is not in use yet
        self._end = 0.0  # the time when the last step ended

    @property
    def over(self) -> bool:
        """True if every candidate was tried."""
        return not self._waiting

    @property
    def current(self) -> T:
        """The candidate to use now; at the end the fastest."""
        return (self._waiting[0] if self._waiting else self.fastest()).candidate

    def fastest(self) -> Trial[T]:
        """Returns the trial with the least median."""
        return min(self.tried, key=lambda trial: trial.median)

    def step_over(self, in_use: bool, now: float) -> bool:
        """Records a step's end. now: seconds. in_use: it had the current candidate. Returns ``over``."""
        if not in_use:
            self._steps = -1
            return False
        self._steps += 1
        if self._steps > self._uncounted:
            self._waiting[0].seconds.append(now - self._end)
        self._end = now
        if self._steps == self._uncounted + self._each:
            self._waiting.pop(0)
            self._steps = -1
        return self.over
