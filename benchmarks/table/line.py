"""One line of the table: a result, the peer that it is compared with, and its goal."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks import show


@dataclass(frozen=True)
class Goal:
    """A limit: the value must be at least, or at most, this."""

    limit: float
    at_least: bool = True

    def met(self, value: float) -> bool:
        """Return whether the value is within the limit."""
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True)
class Line:
    """One comparison.

    `value` is in `unit`: "x" (a ratio), "s", "B", "%", or "" (a count). If it is None, nothing was measured
    and `own` says why. `own` and the peer's measurement are texts with units. `low` and `high` bound the
    value's 95 % interval.
    """

    work: str
    own: str
    peer: str = ""
    theirs: str = ""
    value: float | None = None
    unit: str = "x"
    goal: Goal | None = None
    low: float | None = None
    high: float | None = None

    @property
    def met(self) -> bool | None:
        """Return whether the goal is met; None if there is no goal or no value."""
        return None if self.goal is None or self.value is None else self.goal.met(self.value)

    @property
    def verdict(self) -> str:
        """Return "yes", "no", or "within noise" if the value misses the goal by less than the noise."""
        if self.goal is None or self.met is None:
            return ""
        bound = self.high if self.goal.at_least else self.low
        noise = bound is not None and self.goal.met(bound)
        return "yes" if self.met else "within noise" if noise else "no"

    def cells(self) -> list[str]:
        """Return the texts of the columns of COLUMNS."""
        value = "" if self.value is None else show.quantity(self.value, self.unit)
        value += show.interval(self.low, self.high, self.unit)
        against = f"{self.peer} {self.theirs}".strip()
        return [self.work, self.own, against, value, self._goal_text(), self.verdict]

    def _goal_text(self) -> str:
        if self.goal is None:
            return ""
        if self.goal.limit == 0:
            return show.quantity(0, self.unit)
        sign = ">=" if self.goal.at_least else "<="
        return f"{sign} {show.quantity(self.goal.limit, self.unit)}"


COLUMNS = ("work", "Roundelay", "against", "measured", "goal", "met")


def missing(work: str, why: str) -> Line:
    """Make a line that says why there is no result."""
    return Line(work, f"not measured: {why}")
