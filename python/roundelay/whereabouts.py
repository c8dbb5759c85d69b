"""Where this program is, told to ranks that wait for it (``ROUNDELAY_STALL_STACKS``)."""

from __future__ import annotations

import sys
import threading
import traceback
from pathlib import Path

_SHOWN = 4  # calls, from the innermost out


def of_main_thread() -> str:
    """``Python is in load (data.py:31), called from train (train.py:88)``: the innermost calls."""
    frame = sys._current_frames().get(threading.main_thread().ident or -1)
    if frame is None:
        return "Python's main thread has ended"
    calls = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=_SHOWN, lookup_lines=False)
    places = [f"{call.name} ({Path(call.filename).name}:{call.lineno})" for call in calls]
    return "Python is in " + ", called from ".join(places)
