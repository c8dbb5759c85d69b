"""What the names of elastic training do in this version."""

from __future__ import annotations

from typing import Any, NoReturn

from roundelay.errors import NotInThisVersionError


def absent(name: str) -> NoReturn:
    """Raises the one line."""
    raise NotInThisVersionError(
        f"hvd.elastic.{name} is not in this version of Roundelay yet: the number of ranks is fixed"
    )


class Absent:
    """A class that can be named, and subclassed, but not made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        absent(type(self).__name__)
