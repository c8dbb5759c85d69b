"""The signals that the launcher and its helpers handle. One that is ignored (nohup: SIGHUP) stays so."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# The launcher forwards these to the ranks' programs, as mpirun does, and goes on.
FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)

Handler = Callable[[int, FrameType | None], Any] | signal.Handlers


def handle(signums: tuple[signal.Signals, ...], handler: Handler) -> dict[signal.Signals, Any]:
    """Installs a handler for the signals that this process does not ignore; returns the handlers before."""
    return {
        signum: signal.signal(signum, handler)
        for signum in signums
        if signal.getsignal(signum) is not signal.SIG_IGN
    }
