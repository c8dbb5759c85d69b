"""A claim of a paper beside a prediction, and the constant that moves the prediction most."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

_STEP = 1.1  # a constant is varied by this factor


class Kind(enum.Enum):
    """The way in which a claim is checked."""

    PREDICTED = "predicted, by the model"
    MEASURED = "reproduced here"
    NOT_CHECKABLE = "cannot be checked here"


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """One line of the table. Its fields are texts of the cells."""

    paper: str
    text: str
    published: str
    kind: Kind
    ours: str
    difference: str = ""
    sensitive: str = ""


def sensitivity(function: Callable[[Any], float], constants: Any) -> str:
    """Name the constant (a float of the dataclass) that moves the result most, and by how much."""
    base = function(constants)
    found = []
    for field in dataclasses.fields(constants):
        value = getattr(constants, field.name)
        if not isinstance(value, float):
            continue
        moved = function(dataclasses.replace(constants, **{field.name: value * _STEP}))
        found.append((abs(moved / base - 1), moved / base - 1, field.name))
    _, change, name = max(found)
    return f"{name.replace('_', ' ')}: {change:+.1%} for 10 % more"


def predicted(
    paper: str,
    text: str,
    published: float,
    function: Callable[[Any], float],
    constants: Any,
    form: str = "{:.1f}",
    note: str = "",
) -> Claim:
    """Make the line of a number that the model predicts."""
    value = function(constants)
    return Claim(
        paper,
        text,
        form.format(published),
        Kind.PREDICTED,
        form.format(value) + (f"; {note}" if note else ""),
        f"{value / published - 1:+.1%}",
        sensitivity(function, constants),
    )
