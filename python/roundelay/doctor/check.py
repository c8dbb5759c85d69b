"""A row of the doctor's table."""

from __future__ import annotations

import enum
from dataclasses import dataclass

REBUILD = "install Roundelay again where its torch and MPI are: pip install --no-build-isolation ."


class State(enum.Enum):
    """The result of a check."""

    OK = "ok"
    OFF = "not usable"  # this is by design, or another one replaces it
    BROKEN = "broken"


@dataclass(frozen=True)
class Check:
    """One row of the table: the thing that was checked, the finding, and the cure if it is broken."""

    name: str
    state: State
    found: str
    cure: str = ""


def first_line(text: str) -> str:
    """Returns the first line of a message."""
    return text.strip().splitlines()[0] if text.strip() else "no reason given"


def last_lines(text: str, count: int = 12) -> str:
    """Returns the last lines of a longer output."""
    return "\n".join(text.strip().splitlines()[-count:])
