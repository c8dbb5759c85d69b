"""A file without a name, for a function until the ranks read it. It goes when all processes close it."""

from __future__ import annotations

import os
import tempfile
from typing import BinaryIO


def anonymous_file() -> BinaryIO:
    """Returns a new file: in memory where the kernel allows it, else on disk."""
    try:
        return os.fdopen(os.memfd_create("roundelay.run"), "wb")
    except OSError:
        return tempfile.TemporaryFile()
