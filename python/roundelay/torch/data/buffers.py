"""Memory for the data of samples, which is used again when the samples are gone.

The C library gives large memory back to the system when it is freed. Each sample would then be copied into
fresh pages, whose first use takes longer than the copy.
"""

from __future__ import annotations

import sys
import threading
from collections import deque

_LEAST = 16 << 10  # bytes; the C library keeps smaller memory itself
_MOST = 64 << 20  # bytes that are kept, in use or not


class Buffers:
    """Hands out buffers. Threads may share it; in a forked child it is the child's own."""

    def __init__(self, most: int = _MOST) -> None:
        """Keeps no memory yet. most: the bytes to keep; buffers beyond them are freed after use."""
        self._most = most
        self._size = 0  # the bytes that are kept; changed under the lock
        self._lock = threading.Lock()
        self._kept: deque[bytearray] = deque()  # the one handed out last comes last

    def take(self, size: int) -> bytearray:
        """Returns a buffer of that size. Nothing else uses it before the last reference to it is gone.

        A tensor or an array made by ``frombuffer`` has a reference, and so have its views. The content is
        arbitrary.
        """
        if not _LEAST <= size <= self._most:
            return bytearray(size)
        try:
            buffer, references = _first(self._kept)  # no other thread gets this one
        except IndexError:
            return self._keep(bytearray(size))
        unused = references == _UNUSED
        if unused and len(buffer) == size:
            self._kept.append(buffer)
            return buffer
        if unused:  # samples have another size now
            with self._lock:
                self._size -= len(buffer)
        else:
            self._kept.append(buffer)
        return self._keep(bytearray(size))

    def _keep(self, buffer: bytearray) -> bytearray:
        with self._lock:
            keep = self._size + len(buffer) <= self._most
            if keep:
                self._size += len(buffer)
        if keep:
            self._kept.append(buffer)
        return buffer

    def after_fork(self) -> None:
        """Frees the lock in a forked child: a thread that the child does not have may have held it."""
        self._lock = threading.Lock()


def _first(kept: deque[bytearray]) -> tuple[bytearray, int]:
    """Takes the first buffer out. Returns it and the number of its references."""
    buffer = kept.popleft()
    return buffer, sys.getrefcount(buffer)


# The number that _first() returns if nothing else refers to the buffer. Versions of Python differ in it.
_UNUSED = _first(deque([bytearray(1)]))[1]
