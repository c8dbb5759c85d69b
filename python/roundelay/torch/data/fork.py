"""Lets objects prepare for a fork of this process, as DataLoader makes one for each worker."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forked(Protocol):
    """An object with a lock that must be free in a forked child."""

    def before_fork(self) -> None:
        """Takes the lock, so that no other thread has it in the moment of the fork."""

    def after_fork(self) -> None:
        """Releases the lock, in parent and child."""


_watched: weakref.WeakSet[Forked] = weakref.WeakSet()
_forking = threading.Lock()  # two threads may fork at a time
_prepared: list[Forked] = []


def watch(one: Forked) -> None:
    """Calls the object's methods at every fork, as long as it exists."""
    _watched.add(one)


def _before() -> None:
    _forking.acquire()
    _prepared[:] = list(_watched)
    for one in _prepared:
        one.before_fork()


def _after() -> None:
    for one in _prepared:
        one.after_fork()
    _prepared.clear()
    _forking.release()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
