"""The format that the states of strategies had before this one. It still loads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FORMER = 2


def is_of_former_format(state: Any) -> bool:
    """Returns whether this is a state of the former format, with other keys and numbers."""
    return isinstance(state, Mapping) and state.get("format") == _FORMER
