"""Locks of files and folders between the processes of a node.

The kernel releases such a lock when its process dies. A forked child does not keep its parent's locks.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FIRST_PAUSE_S = 0.0001
_LONGEST_PAUSE_S = 0.02
_kept: set[int] = set()  # file descriptors of this process's locks


def _forget_after_fork() -> None:
    # The child shares the locks through its copies of the descriptors.
    for descriptor in _kept:
        os.close(descriptor)
    _kept.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


def lock(path: Path, limit_s: float, shared: bool = False) -> int:
    """Locks a file or folder, which must exist, and returns the lock for ``release``.

    path: several processes can have a shared lock of it, or one process has an exclusive lock. limit_s:
    seconds to wait. Raises TimeoutError after them, OSError if the file cannot be opened or locked.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    descriptor = os.open(path, os.O_RDONLY)
    _kept.add(descriptor)
    try:
        _wait_for(descriptor, kind, path, time.monotonic() + limit_s)
    except BaseException:
        release(descriptor)
        raise
    return descriptor


def _wait_for(descriptor: int, kind: int, path: Path, deadline: float) -> None:
    pause = _FIRST_PAUSE_S
    while True:
        try:
            return fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"another process has locked {path}") from None
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def share(descriptor: int) -> None:
    """Turns an exclusive lock into a shared one. The caller must keep others from locking meanwhile."""
    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def release(descriptor: int) -> None:
    """Gives a lock up. It does nothing in a forked child, which has no locks."""
    if descriptor in _kept:
        _kept.discard(descriptor)
        os.close(descriptor)


@contextmanager
def held(path: Path, limit_s: float) -> Iterator[None]:
    """Holds an exclusive lock during a block. Raises as ``lock`` does."""
    descriptor = lock(path, limit_s)
    try:
        yield
    finally:
        release(descriptor)


def lock_unused(path: Path, limit_s: float = 0.0) -> int | None:
    """Returns an exclusive lock, or None if the path is gone or another process has a lock.

    limit_s: seconds to wait for the other processes.
    """
    try:
        return lock(path, limit_s)
    except (TimeoutError, FileNotFoundError):
        return None
