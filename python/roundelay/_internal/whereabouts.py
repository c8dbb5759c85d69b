"""Tells the ranks that wait for this process where its Python is (``ROUNDELAY_STALL_STACKS``)."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

_SHOWN = 4  # calls, from the innermost out
_LIBRARIES = ("roundelay", "torch")


def of_main_thread() -> str:
    """Returns the innermost calls: ``Python is in load (data.py:31), called from train (train.py:88)``.

    The core calls it, on a thread of its own, when a rank asks.
    """
    frame = sys._current_frames().get(threading.main_thread().ident or -1)
    if frame is None:
        return "Python's main thread has ended"
    calls = traceback.StackSummary.extract(_telling(frame), limit=_SHOWN, lookup_lines=False)
    places = [f"{call.name} ({Path(call.filename).name}:{call.lineno})" for call in calls]
    return "Python is in " + ", called from ".join(places)


def _telling(innermost: FrameType) -> Iterator[tuple[FrameType, int]]:
    """Yields the innermost call, and those that lead to it but for the libraries' own."""
    for frame, line in traceback.walk_stack(innermost):
        module = frame.f_globals.get("__name__") or ""
        if frame is innermost or module.partition(".")[0] not in _LIBRARIES:
            yield frame, line
