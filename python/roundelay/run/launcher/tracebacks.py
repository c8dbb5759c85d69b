"""Finds the exceptions in what a Python program writes to stderr."""

from __future__ import annotations

_BEGIN = b"Traceback (most recent call last):"
# Python writes these before the traceback of an exception that does not end the program.
_OF_OTHERS = (b"Exception in thread ", b"Exception ignored in")


class Tracebacks:
    """Reads lines and keeps the one that names the last exception. Its text may go on below that line."""

    def __init__(self) -> None:
        self.exception = b""
        self._before = b""
        self._inside = False

    def read(self, line: bytes) -> None:
        """Takes the next line."""
        if line.startswith(_BEGIN):
            self._inside = not self._before.startswith(_OF_OTHERS)
        elif self._inside and line.strip() and not line[:1].isspace():
            self._inside = False
            self.exception = line
        self._before = line
