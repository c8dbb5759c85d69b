"""Makes dataclasses of a JSON file's objects, which must have their fields and no others."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, TypeVar


class WrongPartError(ValueError):
    """A part of the file is of another form; the text names it."""


_Part = TypeVar("_Part")
_KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "float | None": (int, float, type(None)),
    "bool": (bool,),
    "int | None": (int, type(None)),
}


def objects(kind: type[_Part], name: str, content: Any) -> tuple[_Part, ...]:
    """Makes one of each element of a list. Raises WrongPartError."""
    if not isinstance(content, list):
        raise WrongPartError(f'"{name}" is no list')
    return tuple(object_(kind, f"{name}[{index}]", one) for index, one in enumerate(content))


def object_(kind: type[_Part], name: str, content: Any) -> _Part:
    """Makes a dataclass of a JSON object. Raises WrongPartError.

    Numbers are finite and not negative. Fields that are parts themselves keep their JSON for the caller.
    """
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    if not isinstance(content, dict) or set(content) != {field.name for field in fields}:
        raise WrongPartError(f'"{name}" must have {", ".join(field.name for field in fields)}')
    for field in fields:
        value, of = content[field.name], str(field.type)
        kinds = _KINDS.get(of, (list,) if of.startswith("tuple") else (dict,))
        if not isinstance(value, kinds) or (isinstance(value, bool) and of != "bool"):
            raise WrongPartError(f'"{name}.{field.name}" is {value!r}, not of type {field.type}')
        if isinstance(value, int | float) and not (math.isfinite(value) and 0 <= value < 1 << 63):
            raise WrongPartError(f'"{name}.{field.name}" is {value!r}, out of range')
    return kind(**content)


def text(name: str, content: Any) -> str:
    """Returns a text. Raises WrongPartError."""
    if not isinstance(content, str):
        raise WrongPartError(f'"{name}" is {content!r}, not a text')
    return content
