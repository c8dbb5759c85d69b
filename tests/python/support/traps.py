"""A page of memory that may not be written to: the write calls a handler, wherever in the library it is."""

from __future__ import annotations

import ctypes
import mmap
import signal
from collections.abc import Callable

_libc = ctypes.CDLL(None, use_errno=True)
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int)
_handlers: list[Callable[[int], object]] = []  # ctypes calls them as long as they live


def page_from(address: int) -> int:
    """Returns the first page that begins at the address or after it."""
    return -(-address // mmap.PAGESIZE) * mmap.PAGESIZE


def protect(page: int, size: int, allowed: int) -> None:
    """Allows reading (mmap.PROT_READ) or writing, too."""
    assert _libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(size), allowed) == 0


def on_write(handler: Callable[[], object]) -> None:
    """What a write to a protected page calls. Python's own handlers run later, after the write."""
    _handlers.append(_Handler(lambda _: handler()))
    _libc.signal(ctypes.c_int(signal.SIGSEGV), _handlers[-1])
