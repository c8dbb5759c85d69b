"""One line of the table: what was measured, against whom, and what it shall be."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks import show


@dataclass(frozen=True)
class Goal:
    """A limit: what is measured shall be at least, or at most, this."""

    limit: float
    at_least: bool = True

    def met(self, value: float) -> bool:
        """Whether the value is within the limit."""
        return value >= self.limit if self.at_least else value <= self.limit

    def score(self, value: float) -> float:
        """How many times as good as the limit: from 1 on it is met."""
        over, under = (value, self.limit) if self.at_least else (self.limit, value)
        if under > 0:
            return over / under
        return math.inf if over > 0 or self.met(value) else 0.0


@dataclass(frozen=True)
class Line:
    """One comparison.

    `value` is in `unit`: "x" (a ratio), "s", "B", "%", or "" (a count). None: not measured, `own` says why.
    Own and the peer's measurements are texts, with their units.
    """

    work: str
    own: str
    peer: str = ""
    theirs: str = ""
    value: float | None = None
    unit: str = "x"
    goal: Goal | None = None

    @property
    def met(self) -> bool | None:
        """None where there is no goal, or no value."""
        return None if self.goal is None or self.value is None else self.goal.met(self.value)

    def cells(self) -> list[str]:
        """Texts of the columns of COLUMNS."""
        value = "" if self.value is None else show.quantity(self.value, self.unit)
        verdict = {None: "", True: "yes", False: "no"}[self.met]
        against = f"{self.peer} {self.theirs}".strip()
        return [self.work, self.own, against, value, self._goal_text(), verdict]

    def _goal_text(self) -> str:
        if self.goal is None:
            return ""
        if self.goal.limit == 0:
            return show.quantity(0, self.unit)
        sign = ">=" if self.goal.at_least else "<="
        return f"{sign} {show.quantity(self.goal.limit, self.unit)}"


COLUMNS = ("work", "Roundelay", "against", "measured", "goal", "met")


def faster(work: str, own: float, peer: str, theirs: float, limit: float | None = None) -> Line:
    """Compare times in seconds: how many times as long the peer takes, and shall take at least."""
    goal = None if limit is None else Goal(limit)
    return Line(work, show.seconds_text(own), peer, show.seconds_text(theirs), theirs / own, "x", goal)


def missing(work: str, why: str) -> Line:
    """Say why there is nothing."""
    return Line(work, f"not measured: {why}")
