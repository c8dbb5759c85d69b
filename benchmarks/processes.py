"""Ends processes that were started as a session of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

_GRACE_S = 15.0


def end(process: subprocess.Popen[bytes]) -> None:
    """Let a launcher end its ranks, which outlive it if it is killed; then kill all that are left."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
