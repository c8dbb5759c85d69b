"""Processes that an exception ends, or does not: their agent is to know, and whose fault it was."""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
import threading
import time

from programs.losing_a_rank import HorovodInternalError, tell_agents
from rank_here import Rank


class MismatchError(HorovodInternalError):
    """Stands in for the core's."""


def _lose() -> None:
    raise MismatchError("rank 1 raised ValueError: one\ntwo")


def raises(_: Rank) -> None:
    tell_agents()
    raise ValueError("one\ntwo")


def loses_a_peer(_: Rank) -> None:
    tell_agents()
    _lose()


def raises_because_of_the_loss(_: Rank) -> None:
    tell_agents()
    try:
        _lose()
    except RuntimeError as error:
        raise ValueError from error


def raises_after_the_loss(_: Rank) -> None:
    tell_agents()
    try:
        _lose()
    finally:
        raise KeyError("gone")


def raises_from_none(_: Rank) -> None:
    tell_agents()
    try:
        _lose()
    except RuntimeError:
        raise ValueError from None


def loses_a_peer_with_a_hook_that_is_silent(_: Rank) -> None:
    tell_agents()
    sys.excepthook = lambda *_: None
    _lose()


def raises_with_a_hook_that_shows_it(_: Rank) -> None:
    tell_agents()
    before = sys.excepthook
    sys.excepthook = lambda *error: (print("mine", file=sys.stderr), before(*error))[1]
    raise ValueError("boom")


def exits(_: Rank) -> None:
    tell_agents()
    sys.exit(3)


def loses_a_peer_in_a_thread(_: Rank) -> None:
    tell_agents()
    threading.Thread(target=_lose).start()


def loses_a_peer_in_a_fork(_: Rank) -> None:
    tell_agents()
    faulthandler.cancel_dump_traceback_later()  # its thread is not in the child, which would wait for it
    if os.fork() == 0:
        _lose()
    os.wait()


def has_a_child_that_raises(_: Rank) -> None:
    tell_agents()
    assert "ROUNDELAY_RUN_ERROR" not in os.environ
    subprocess.run([sys.executable, "-c", "import roundelay; 1 / 0"], close_fds=False, check=False)


def raises_and_does_not_end(_: Rank) -> None:
    tell_agents()
    threading.Thread(target=time.sleep, args=(60,)).start()
    raise ValueError("two\nlines")
