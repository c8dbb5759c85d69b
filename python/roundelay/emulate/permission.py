"""Namespaces for a user who is not root: in a user namespace the process is root over its own ones only."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from roundelay.emulate.network import CURE, NetworkError, check_tools

_ENTER = ["unshare", "--user", "--map-root-user"]
_SYSTEM = Path("/proc/sys")
# Settings that forbid user namespaces: the value that does, and one that allows them.
_FORBIDDING = {
    "kernel/unprivileged_userns_clone": ("0", "1"),  # Debian
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "0"),  # Ubuntu
    "user/max_user_namespaces": ("0", "10000"),
}


def become_root(arguments: Sequence[str]) -> NoReturn:
    """Begins `roundelay emulate` anew, as the root of a user namespace of its own; keeps the process.

    Raises NetworkError if the machine forbids it.
    """
    check_tools()
    tried = subprocess.run(
        [*_ENTER, "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        raise NetworkError(
            f"this user may not make namespaces ({tried.stderr.strip()}){how_to_allow(settings())}"
        )
    os.execvp(_ENTER[0], [*_ENTER, sys.executable, "-m", "roundelay", "emulate", *arguments])


def settings() -> dict[str, str]:
    """Returns the system's settings that can forbid user namespaces; those that it has."""
    paths = {name: _SYSTEM / name for name in _FORBIDDING}
    return {name: path.read_text().strip() for name, path in paths.items() if path.exists()}


def how_to_allow(values: Mapping[str, str]) -> str:
    """Returns the error's end: what forbids user namespaces, as far as the settings say, and the cures."""
    for name, value in values.items():
        forbids, allows = _FORBIDDING[name]
        if value == forbids:
            setting = name.replace("/", ".")
            return f": {setting}={value} forbids it; sudo sysctl {setting}={allows} allows it, or {CURE}"
    return f": {CURE}"
