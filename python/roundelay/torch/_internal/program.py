"""What must be the same in all workers of an elastic job. The launcher refuses newcomers that differ."""

from __future__ import annotations

import functools
import hashlib
import platform
import shlex
import sys
from pathlib import Path

import torch

import roundelay
from roundelay import _core


@functools.cache
def described() -> dict[str, str]:
    """Returns texts by what they are, as they were at the first call: a script may be edited meanwhile."""
    return {
        "roundelay": roundelay.__version__,
        "torch": torch.__version__.partition("+")[0],
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "the script": _script(),
        "the list of arguments": shlex.join(sys.argv[1:]),
        "the list of settings": ", ".join(_core.load_config().shared_settings),
    }


def _script() -> str:
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None or not Path(path).is_file():
        return "no file"
    return f"{Path(path).name} (SHA-256 {hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12]})"
