"""Tells of the exception that ends this rank: the agent beside it, so that the launcher names the right rank,
and the peers, so that their own errors name the cause. The agent hears of ``init`` too.

roundelayrun's agent hands down a pipe. Without one this module tells the peers only.
"""

from __future__ import annotations

import atexit
import os
import sys
from types import TracebackType

# "DESCRIPTOR:INODE" of the pipe. A program in between may have closed it and opened another file there.
PIPE = "ROUNDELAY_RUN_ERROR"
# One byte an exception: whether a fault of another rank has caused it. And one for init().
OWN, OF_PEER, INIT = b"o", b"p", b"i"
_LONGEST = 1000  # characters that peers get


def named(descriptor: int) -> str:
    """Returns the value of PIPE for the pipe's end for writing."""
    return f"{descriptor}:{os.fstat(descriptor).st_ino}"


def has_error(report: bytes) -> bool:
    """Returns whether what came through the pipe tells of an exception."""
    return bool(report.strip(INIT))


def caused_by_peer(error: BaseException | None) -> bool:
    """Returns whether a peer has caused an exception, or one of its causes, or one of its group."""
    core = sys.modules.get("roundelay._core")
    if core is None:
        return False
    left: list[BaseException | None] = [error]
    seen: set[int] = set()
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        if isinstance(one, core.HorovodInternalError):
            return True
        seen.add(id(one))
        before = one.__cause__ if one.__suppress_context__ else one.__context__
        left += [before, *getattr(one, "exceptions", ())]
    return False


class _Report:
    """The pipe, while this process may write to it, and the exception that it has told of."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._told: BaseException | None = None
        self.failed = False  # an exception ends this process

    def install(self, descriptor: int) -> None:
        """Tells of each exception that reaches the top, before the present excepthook shows it.

        A hook that the program installs later may not call this one: then the exception is told of at exit.
        """
        self._descriptor = descriptor
        before = sys.excepthook

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            self.tell(error)
            before(kind, error, trace)

        sys.excepthook = hook
        atexit.register(lambda: self.tell(getattr(sys, "last_value", None)))
        os.register_at_fork(after_in_child=self._forget)

    def tell(self, error: BaseException | None) -> None:
        """Writes of an exception, unless it was the last one. Does nothing if the agent is gone."""
        if error is None or error is self._told or self._descriptor is None:
            return
        self._told = error
        self._write(OF_PEER if caused_by_peer(error) else OWN)

    def tell_init(self) -> None:
        """Writes that init() was called."""
        self._write(INIT)

    def _write(self, what: bytes) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, what)
        except OSError:
            self._forget()

    def _forget(self) -> None:
        """Tells no more, as in a forked child: its end is not the rank's."""
        self._descriptor = None


_report = _Report()
tell = _report.tell  # for exceptions that end this process, but do not reach the top
tell_init = _report.tell_init


def failed() -> bool:
    """Returns whether fail() was called."""
    return _report.failed


def tell_peers(error: BaseException) -> None:
    """Makes the job of this process fail with the exception that ends it."""
    fail(f"raised {type(error).__name__}: {error}".removesuffix(": "))


def fail(what: str) -> None:
    """Makes the job of this process fail: this rank has done `what`. Does nothing outside of a job."""
    _report.failed = True
    core = sys.modules.get("roundelay._core")
    if core is None:
        return
    core.fail_c10d_backends(what[:_LONGEST])
    if core.is_initialized():
        core.fail(f"rank {core.rank()} {what}"[:_LONGEST])


def install() -> None:
    """Takes the pipe over, if there is one; processes that this one starts then do not have it."""
    descriptor, _, inode = os.environ.pop(PIPE, "").partition(":")
    try:
        if str(os.fstat(int(descriptor)).st_ino) == inode:
            os.set_inheritable(int(descriptor), False)
            _report.install(int(descriptor))
    except (ValueError, OSError):
        return
