"""Finds the rank that failed first, the job's exit status, and the last message to the user."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from roundelay.run.system.processes import exit_status, how

_RANKS_NAMED = 16
_WHERE = "PYTHONFAULTHANDLER=1 shows where"
_CURES: dict[int, str] = {
    signal.SIGKILL: "if memory was full, `dmesg` on its host tells so",
    signal.SIGBUS: "if /dev/shm is full (`df /dev/shm` on its host), free some of it",
    **dict.fromkeys((signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL), _WHERE),
}
# Python shows a traceback's last line with the name of the exception's class.
_PEER_ERRORS = (b"HorovodInternalError", b"MismatchError")


@dataclass(frozen=True)
class Ending:
    """The end of one rank's program. `returncode` as subprocess has it; `stopped`: it was told to end."""

    rank: int
    returncode: int
    stopped: bool
    place: str  # "pid N on HOST"
    failed_at: float = 0.0  # monotonic seconds of the launcher; of the exception, if the rank told of one
    victim: bool = False  # another rank has caused the failure
    raised: bool = False  # an exception had reached the top, before the program was told to end
    broken: str = ""  # why the connection to the agent broke
    unclear: bool = False  # the agent is gone without a report: its host was lost, or mpirun has killed it

    @property
    def host(self) -> str:
        """The HOST of `place`."""
        return self.place.rpartition(" on ")[2]

    @property
    def failed(self) -> bool:
        """Whether the program failed by itself, as far as its own end tells."""
        return self.returncode != 0 and (self.raised or not (self.stopped or self.unclear))

    @property
    def status(self) -> int:
        """The exit status as a shell has it."""
        return 1 if self.stopped and self.raised else exit_status(self.returncode)

    @property
    def how(self) -> str:
        """Words about the end."""
        if self.stopped and self.raised:
            return "it raised an exception, and did not end in time"
        if self.broken:
            return f"the connection to its host broke: {self.broken}"
        return how(self.returncode)


@dataclass(frozen=True)
class Problem:
    """A failure beside the ranks: in mpirun, or in starting them."""

    text: str
    status: int  # the job's exit status, if no rank failed by itself


@dataclass(frozen=True)
class JobResult:
    """The job's exit status and the message about it. The launcher shows the last lines of `rank`."""

    status: int
    text: str = ""
    rank: int | None = None


def named(ranks: list[int]) -> str:
    """Returns words like "rank 3" or "ranks 1, 2 and 40 more"."""
    shown = ", ".join(map(str, ranks[:_RANKS_NAMED]))
    more = len(ranks) - _RANKS_NAMED
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}" + (f" and {more} more" if more > 0 else "")


def is_victim(last_lines: list[bytes], exception: bytes) -> bool:
    """Returns whether stderr ends with an error that another rank has caused; or the last traceback does."""
    filled = [line for line in last_lines if line.strip()]
    named = (exception.partition(b":")[0], *filled[-1:])
    return any(error in line for line in named for error in _PEER_ERRORS)


def first_failure(endings: list[Ending]) -> Ending | None:
    """Returns the failure that caused the others. `endings` are in order of arrival."""
    failed = [
        ending
        for place, ending in enumerate(endings)
        if ending.failed or (ending.unclear and _outlived(ending, endings[place + 1 :]))
    ]
    failed.sort(key=lambda ending: ending.failed_at)
    culprits = [ending for ending in failed if not ending.victim]
    return next(iter(culprits + failed), None)


def _outlived(lost: Ending, later: list[Ending]) -> bool:
    """Returns whether an agent on another host lived on to report. mpirun kills the agents of all hosts."""
    return any(other.host != lost.host and not (other.unclear or other.broken) for other in later)


def _cure(ending: Ending) -> str:
    """Returns what to do about a signal that a program does not send itself; "" for others."""
    if ending.broken or ending.unclear or ending.returncode >= 0:
        return ""
    cure = _CURES.get(-ending.returncode)
    return "" if cure is None else f": {cure}"


def job_result(
    endings: list[Ending],
    num_proc: int,
    *,
    interrupted_by: int | None,
    problem: Problem | None,
    started_by: str = "mpirun",
) -> JobResult:
    """Returns the job's result: of the user's signal, else of the first failing rank, else of the problem."""
    if interrupted_by is not None:
        name = signal.Signals(interrupted_by).name
        return JobResult(128 + interrupted_by, f"ended by {name}; no rank is left")
    if len(endings) == num_proc and all(ending.returncode == 0 for ending in endings):
        return JobResult(0)
    first = first_failure(endings)
    if first is None and problem is not None:
        return JobResult(problem.status, problem.text)
    if first is None:
        first = next((ending for ending in endings if ending.returncode != 0), None)
    if first is not None:
        text = f"rank {first.rank} ({first.place}) failed first: {first.how}{_cure(first)}"
        return JobResult(first.status, text, first.rank)
    seen = {ending.rank for ending in endings}
    missing = named([rank for rank in range(num_proc) if rank not in seen])
    return JobResult(1, f"{started_by} ended, but never started {missing}")
