"""The names of elastic training raise NotInThisVersionError in this version."""

from __future__ import annotations

from typing import Any, NoReturn

from roundelay.errors import NotInThisVersionError


def absent(name: str) -> NoReturn:
    """Raises NotInThisVersionError for the name."""
    raise NotInThisVersionError(
        f"hvd.elastic.{name} is not in this version of Roundelay yet: the number of ranks is fixed"
    )


class Absent:
    """A class without instances; it can be imported and subclassed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        absent(type(self).__name__)
