"""The number of steps between two averages of local SGD: always the same, or a schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from roundelay._internal.spelling.table import kind_of

Period = int | Callable[[int], int] | Sequence[tuple[int, int]]
_KIND = kind_of("local_sgd", "period")


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
        if callable(given):
            self._function = given
        else:
            self._pairs = _KIND.pairs("period", given)

    @property
    def text(self) -> str:
        """Returns the form in texts; a function's name if a function was given."""
        if self._function is not None:
            return getattr(self._function, "__name__", type(self._function).__name__)
        return str(_KIND.write(self._pairs))

    def after(self, step: int) -> int:
        """Returns the number of steps between this one and the next average."""
        if self._function is not None:
            return int(_KIND.checked(f"period({step})", self._function(step)))
        return next(period for begin, period in reversed(self._pairs) if begin <= step)
