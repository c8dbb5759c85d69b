"""JSON with a row a line: short enough to read a difference, and few enough lines to keep."""

from __future__ import annotations

import json
from typing import Any

_ROW_COLUMNS = 600  # what is shorter is a row


def as_rows(value: Any, indent: int = 0) -> str:
    """Write a value as JSON. What has no object inside, such as a curve, is a row at any length."""
    row = json.dumps(value)
    if len(row) + indent <= _ROW_COLUMNS or not any(map(_has_object, _parts(value))):
        return row
    if isinstance(value, dict):
        lines, ends = [f"{json.dumps(key)}: {as_rows(one, indent + 1)}" for key, one in value.items()], "{}"
    else:
        lines, ends = [as_rows(one, indent + 1) for one in value], "[]"
    separator = "\n" + " " * (indent + 1)
    return ends[0] + separator + f",{separator}".join(lines) + "\n" + " " * indent + ends[1]


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple)) else []


def _has_object(value: Any) -> bool:
    return isinstance(value, dict) or any(map(_has_object, _parts(value)))
