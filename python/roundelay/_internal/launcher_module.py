"""The launcher's compiled module: parts of the core that need no torch, so that they load at once."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

from roundelay._internal import backend


def _function(name: str) -> ctypes._NamedFuncPointer:
    path = backend.launcher_module()
    if path is None:
        raise RuntimeError("this build of Roundelay has no launcher module: install it again")
    function = ctypes.CDLL(path)[name]
    function.restype = ctypes.c_char_p
    return function


def refusal(environment: Mapping[str, str]) -> str:
    """Returns why init() would refuse these variables; empty if it would not. Raises RuntimeError."""
    entries = [os.fsencode(f"{name}={value}") for name, value in environment.items()]
    text: bytes = _function("roundelay_refusal")((ctypes.c_char_p * (len(entries) + 1))(*entries, None))
    return os.fsdecode(text)


def algorithms() -> Mapping[str, tuple[str, ...]]:
    """Returns each operation's algorithms (csrc/base/algorithms.def). Raises RuntimeError."""
    text: bytes = _function("roundelay_algorithms")()
    names: dict[str, tuple[str, ...]] = {}
    for line in text.decode().splitlines():
        operation, name = line.split()
        names[operation] = (*names.get(operation, ()), name)
    return names
