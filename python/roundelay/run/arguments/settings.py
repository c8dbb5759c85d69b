"""Checks the ranks' settings before any rank starts: by the core's own table, without loading torch."""

from __future__ import annotations

from collections.abc import Mapping

from roundelay._internal import launcher_module
from roundelay.run.errors import UsageError


def check(environment: Mapping[str, str]) -> None:
    """Raises UsageError for the first variable that init() would refuse."""
    try:
        text = launcher_module.refusal(environment)
    except RuntimeError as error:
        raise UsageError(str(error)) from error
    if text:
        raise UsageError(text)


def variable(knob: str, environment: Mapping[str, str]) -> str | None:
    """Returns the variable that sets `knob`, ours or Horovod's of the same name; None if none does."""
    names = (f"ROUNDELAY_{knob}", f"HOROVOD_{knob}")
    return next((name for name in names if name in environment), None)
