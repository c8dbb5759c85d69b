"""The number of steps between two averages of local SGD: always the same, or a schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from roundelay.torch.strategies._shared.numbers import int_from, whole_number

Period = int | Callable[[int], int] | Sequence[tuple[int, int]]
LONGEST = 1_000_000


class Periods:
    """Reads what a user gives as ``period``.

    It is a whole number; or a list of (step, period), each of which counts from its step on, beginning with
    step 0; or a function. Each average calls the function with the number of steps taken, and gets the
    number of steps until the next average.

    ValueError: it is none of these.
    """

    def __init__(self, given: Any) -> None:
        self._function: Callable[[int], Any] | None = None
        self._pairs: tuple[tuple[int, int], ...] = ()
        if isinstance(given, int):
            self._pairs = ((0, checked_period(given)),)
        elif callable(given):
            self._function = given
        else:
            self._pairs = _checked_pairs(given)

    @classmethod
    def from_text(cls, text: str) -> Periods:
        """Reads ``8``, or ``0/1+1000/8``: period 1 from step 0 on, period 8 from step 1000 on."""
        pairs = [pair.partition("/") for pair in text.split("+")]
        if len(pairs) == 1 and not pairs[0][1]:
            return cls(int_from("period", text))
        return cls([(int_from("a step of period", a), int_from("a period", b)) for a, _, b in pairs])

    @property
    def text(self) -> str:
        """Returns the form that from_text() reads; a function's name if a function was given."""
        if self._function is not None:
            return getattr(self._function, "__name__", type(self._function).__name__)
        if len(self._pairs) == 1:
            return str(self._pairs[0][1])
        return "+".join(f"{step}/{period}" for step, period in self._pairs)

    def after(self, step: int) -> int:
        """Returns the number of steps between this one and the next average."""
        if self._function is not None:
            return checked_period(self._function(step), f"period({step})")
        return next(period for begin, period in reversed(self._pairs) if begin <= step)


def checked_period(value: Any, called: str = "period") -> int:
    """Returns the number of steps. ValueError: it is none."""
    number = whole_number(called, value, 1)
    if number > LONGEST:
        raise ValueError(f"{called} is {value}, but must be at most {LONGEST}")
    return number


def _checked_pairs(given: Any) -> tuple[tuple[int, int], ...]:
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise ValueError(
            f"period is {given!r}, but must be a number of steps, a list of (step, period) or a function of "
            "the step"
        )
    pairs = []
    for pair in given:
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise ValueError(f"period has {pair!r}, but must be a list of (step, period)")
        pairs.append((whole_number("a step of period", pair[0], 0), checked_period(pair[1])))
    if pairs[0][0] != 0 or any(later <= earlier for (earlier, _), (later, _) in pairwise(pairs)):
        raise ValueError(f"period is {given!r}, but its steps must begin with 0 and ascend")
    return tuple(pairs)
