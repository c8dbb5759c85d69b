"""Tells the ranks that wait for this process where its Python is (``ROUNDELAY_STALL_STACKS``)."""

from __future__ import annotations

import sys
import threading
import traceback
from pathlib import Path

_SHOWN = 4  # calls, from the innermost out


def of_main_thread() -> str:
    """Returns the innermost calls: ``Python is in load (data.py:31), called from train (train.py:88)``.

    The core calls it, on a thread of its own, when a rank asks.
    """
    frame = sys._current_frames().get(threading.main_thread().ident or -1)
    if frame is None:
        return "Python's main thread has ended"
    calls = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=_SHOWN, lookup_lines=False)
    places = [f"{call.name} ({Path(call.filename).name}:{call.lineno})" for call in calls]
    return "Python is in " + ", called from ".join(places)
