"""Descriptors 0, 1 and 2. A shell can close them (`roundelayrun ... >&-`)."""

from __future__ import annotations

import os
import sys


def open_all() -> None:
    """Opens the null device where one is closed, so that no other file takes its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
            os.set_inheritable(null, True)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
