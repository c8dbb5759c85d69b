"""Processes that end with others: children, orphans that a process adopts, those whose parent dies.

And words for how one ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time

ORPHAN_GRACE_S = 1.0  # from SIGTERM to SIGKILL for processes without a program or a launcher
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def die_with_parent(signum: int) -> None:
    """Asks the kernel to send `signum` to this process when the thread that forked it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0)


def children() -> list[int]:
    """Returns the pids of this process's children, orphans that it adopted included."""
    found: list[int] = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children") as listing:
                found += [int(pid) for pid in listing.read().split()]
        except OSError:
            continue
    return found


def send_signal(pid: int, signum: int) -> None:
    """Sends a signal to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)


def end_orphans(grace: float = ORPHAN_GRACE_S) -> None:
    """Ends every child process that is left, adopted ones included: SIGTERM, a grace, SIGKILL."""
    deadline = time.monotonic() + grace
    for pid in children():
        send_signal(pid, signal.SIGTERM)
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            if time.monotonic() > deadline:
                for orphan in children():
                    send_signal(orphan, signal.SIGKILL)
            time.sleep(0.01)


def adopt_orphans() -> None:
    """Makes this process adopt the orphans of its descendants."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def exit_status(returncode: int) -> int:
    """Returns the exit status as a shell has it: 128 + signal for a process that a signal ended."""
    return 128 - returncode if returncode < 0 else returncode


def how(returncode: int) -> str:
    """Returns words like "exit code 3" or "killed by SIGKILL (signal 9)"."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        return f"killed by signal {-returncode}"
    return f"killed by {name} (signal {-returncode})"
