"""Finds what is wrong with the file that a command is to write, before the command works for minutes."""

from __future__ import annotations

import os
from pathlib import Path


def objection(path: Path) -> str | None:
    """Returns why no file can have this path: it is a folder, or its folder is missing. None: neither."""
    if path.is_dir():
        return "it is a folder"
    if not path.parent.is_dir():
        return f"there is no folder {os.fspath(path.parent)!r}"
    return None
