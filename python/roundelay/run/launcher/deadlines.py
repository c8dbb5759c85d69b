"""The times at which ranks, and what has started them, are told to end."""

from __future__ import annotations

import signal

# These times count from a rank's failure. If it exited, the others get a moment to end by themselves: they
# may fail of the same cause. If it was killed, they get longer to say which rank they lost; if it has lost
# another one, that one gets as long to end. Then they get SIGTERM, and SIGKILL after KILL_AFTER_S. All is
# over within 5 s of the failure.
EXIT_GRACE_S, LOST_GRACE_S, KILL_AFTER_S = 1.0, 2.5, 3.5
INTERRUPT_GRACE_S = 5.0  # from the user's first signal to SIGKILL
# What has started the ranks gets this time to end after them, and after each signal; longer if all went well.
STARTER_GRACE_S, STARTER_QUIET_GRACE_S = 1.0, 5.0
_NEVER = float("inf")


class Deadlines:
    """Keeps these times, as monotonic seconds. killed: the time for SIGKILL has come."""

    def __init__(self) -> None:
        self.killed = False
        self._terminate_at = self._kill_at = self._end_starter_at = _NEVER
        self._starter_signals = [signal.SIGTERM, signal.SIGKILL]

    def rank_failed(self, now: float, lost: bool) -> None:
        """Gives the others their time. lost: a rank was killed, or has lost another one."""
        self._terminate_at = min(self._terminate_at, now + (LOST_GRACE_S if lost else EXIT_GRACE_S))
        self._kill_at = min(self._kill_at, now + KILL_AFTER_S)

    def interrupted(self, now: float) -> None:
        """Gives all ranks their time after the user's first signal."""
        self._terminate_at = _NEVER
        self._kill_at = now + INTERRUPT_GRACE_S

    def kill(self, now: float) -> None:
        """Records that the ranks are killed. What has started them must end soon, too."""
        self.killed = True
        self._kill_at = _NEVER
        self._end_starter_at = min(self._end_starter_at, now + STARTER_GRACE_S)

    def all_ended(self, now: float, well: bool) -> None:
        """Gives what has started the ranks its time to end by itself."""
        self._end_starter_at = now + (STARTER_QUIET_GRACE_S if well else STARTER_GRACE_S)

    def must_terminate(self, now: float) -> bool:
        """Returns once whether it is time for SIGTERM to the ranks."""
        due = now >= self._terminate_at
        if due:
            self._terminate_at = _NEVER
        return due

    def must_kill(self, now: float) -> bool:
        """Returns whether it is time for SIGKILL to the ranks, until kill() is called."""
        return now >= self._kill_at

    def signal_for_starter(self, now: float) -> signal.Signals | None:
        """Returns the signal that what has started the ranks is to get now; the next one comes later."""
        if now < self._end_starter_at:
            return None
        signum = self._starter_signals[0]
        del self._starter_signals[:-1]
        self._end_starter_at = now + STARTER_GRACE_S
        return signum
