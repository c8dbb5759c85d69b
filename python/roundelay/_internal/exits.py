"""Notices that sys.exit() ends this process, which Python tells neither excepthooks nor atexit's functions.

The exception of each sys.exit() has a witness. Python drops an exception that nobody has caught when no frame
is left, before it calls atexit's functions; one that was caught is dropped in the frame that caught it.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, NoReturn


class _Witness:
    """Dies with the exception of a sys.exit() of the main thread."""

    uncaught: Any = None  # the status of the sys.exit() that ends this process

    def __init__(self, status: Any) -> None:
        self._status = status

    def __del__(self) -> None:
        if sys._getframe().f_back is None:
            _Witness.uncaught = self._status


def _witnessed(status: Any) -> SystemExit:
    error = SystemExit(status)
    if threading.current_thread() is threading.main_thread():
        error.__dict__["roundelay_witness"] = _Witness(status)
    return error


def _exit(status: Any = None, /) -> NoReturn:
    """Ends this process, as Python's own sys.exit() does."""
    raise _witnessed(status)  # not in a variable of this frame, which would keep its own exception alive


def watch() -> None:
    """Begins to watch sys.exit()."""
    sys.exit = _exit


def failure() -> str | None:
    """Returns what the sys.exit() says that ends this process with an error; None: none does. For atexit."""
    status = _Witness.uncaught
    if status is None or status == 0:
        return None
    return f"sys.exit({status})" if isinstance(status, int) else f"sys.exit: {status}"
