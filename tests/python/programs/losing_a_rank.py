"""Rank 0 has lost rank 1, and ends before it with the core's error. Without torch, whose import is slow."""

from __future__ import annotations

import atexit
import sys
import threading
import time
import types

from rank_here import Rank


class HorovodInternalError(RuntimeError):
    """Stands in for the core's."""


HorovodInternalError.__module__ = "roundelay._core"  # as tracebacks show it
CAUSE = "one\ntwo\nthree"


def tell_agents() -> None:
    """Has Roundelay tell the rank's agent of exceptions, with this class for the core's."""
    import roundelay  # noqa: F401

    core = types.SimpleNamespace(HorovodInternalError=HorovodInternalError)
    sys.modules["roundelay._core"] = core  # type: ignore[assignment]


def _rank_0_ends_first(me: Rank, tells: bool) -> None:
    if tells:
        tell_agents()
    me.meet(2)
    if me.number == 0:
        atexit.register(lambda: print("a line at exit", file=sys.stderr))
        raise HorovodInternalError(f"rank 1 raised ValueError: {CAUSE}")


def raises_when_rank_0_has_ended(me: Rank, tells: bool) -> None:
    _rank_0_ends_first(me, tells)
    me.wait_for_end(0)
    raise ValueError(CAUSE)


def raises_and_does_not_end(me: Rank) -> None:
    _rank_0_ends_first(me, tells=True)
    threading.Thread(target=time.sleep, args=(60,)).start()
    raise ValueError(CAUSE)
