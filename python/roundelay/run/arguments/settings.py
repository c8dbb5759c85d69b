"""Checks the ranks' settings before any rank starts: by the core's own table, without loading torch."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

from roundelay._internal import backend
from roundelay.run.errors import UsageError


def check(environment: Mapping[str, str]) -> None:
    """Raises UsageError for the first variable that init() would refuse."""
    path = backend.launcher_module()
    if path is None:
        raise UsageError("this build of Roundelay has no launcher module: install it again")
    refusal = ctypes.CDLL(path).roundelay_refusal
    refusal.restype = ctypes.c_char_p
    entries = [os.fsencode(f"{name}={value}") for name, value in environment.items()]
    text = refusal((ctypes.c_char_p * (len(entries) + 1))(*entries, None))
    if text:
        raise UsageError(os.fsdecode(text))


def variable(knob: str, environment: Mapping[str, str]) -> str | None:
    """Returns the variable that sets `knob`, ours or Horovod's of the same name; None if none does."""
    names = (f"ROUNDELAY_{knob}", f"HOROVOD_{knob}")
    return next((name for name in names if name in environment), None)
