"""Finds the rank that failed first, the job's exit status, and the last message to the user."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

_RANKS_NAMED = 16
# Python shows a traceback's last line with the name of the exception's class.
_PEER_ERRORS = (b"HorovodInternalError", b"MismatchError")


@dataclass(frozen=True)
class Ending:
    """The end of one rank's program. `returncode` as subprocess has it; `stopped`: it was told to end."""

    rank: int
    returncode: int
    stopped: bool
    place: str  # "pid N on HOST"

    @property
    def status(self) -> int:
        """The exit status as a shell has it."""
        return exit_status(self.returncode)


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


def named(ranks: list[int]) -> str:
    """Returns words like "rank 3" or "ranks 1, 2 and 40 more"."""
    shown = ", ".join(map(str, ranks[:_RANKS_NAMED]))
    more = len(ranks) - _RANKS_NAMED
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}" + (f" and {more} more" if more > 0 else "")


def is_victim(last_lines: list[bytes]) -> bool:
    """Returns whether a rank's last line on stderr is an error that another rank has caused."""
    filled = [line for line in last_lines if line.strip()]
    return bool(filled) and any(error in filled[-1] for error in _PEER_ERRORS)


def first_failure(endings: list[Ending], last_lines: Callable[[int], list[bytes]]) -> Ending | None:
    """Returns the failure that caused the others. `endings` are in order of arrival."""
    failed = [ending for ending in endings if ending.returncode != 0 and not ending.stopped]
    culprits = [ending for ending in failed if not is_victim(last_lines(ending.rank))]
    return next(iter(culprits + failed), None)


def job_result(
    endings: list[Ending],
    num_proc: int,
    last_lines: Callable[[int], list[bytes]],
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
    first = first_failure(endings, last_lines)
    if first is None and problem is not None:
        return JobResult(problem.status, problem.text)
    if first is None:
        first = next((ending for ending in endings if ending.returncode != 0), None)
    if first is not None:
        text = f"rank {first.rank} ({first.place}) failed first: {how(first.returncode)}"
        return JobResult(first.status, text, first.rank)
    seen = {ending.rank for ending in endings}
    missing = named([rank for rank in range(num_proc) if rank not in seen])
    return JobResult(1, f"{started_by} ended, but never started {missing}")
