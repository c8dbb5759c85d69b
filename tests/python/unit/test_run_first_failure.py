"""Which rank failed first: by what the ranks told of their exceptions, by stderr, by lost connections."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from programs import telling
from rank_here import Rank
from rank_program import Program, program
from ranks import ROOT
from roundelay._internal import error_report
from roundelay.run.launcher.result import Ending, first_failure, is_victim, job_result
from roundelay.run.launcher.tracebacks import Tracebacks

LIMIT_S = 60.0


def ending(rank: int, returncode: int, host: str = "here", **more: object) -> Ending:
    return replace(Ending(rank, returncode, False, f"pid {100 + rank} on {host}"), **more)  # type: ignore[arg-type]


# --- what a process tells ---


def told(
    folder: Path, work: Program, *, shell: str = 'exec "$@"', inode: str | None = None
) -> tuple[bytes, str]:
    """What a program under a shell tells its agent, and what it writes to stderr."""
    ours, theirs = os.pipe()
    pipe = error_report.named(theirs) if inode is None else f"{theirs}:{inode}"
    command = ["bash", "-c", shell, "bash", sys.executable, *work.words(folder)]
    with os.fdopen(ours, "rb") as reader:
        try:
            done = subprocess.run(
                command,
                env={**os.environ, error_report.PIPE: pipe, "PYTHONPATH": str(ROOT / "python")},
                pass_fds=[theirs],
                stderr=subprocess.PIPE,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        finally:
            os.close(theirs)
        return reader.read(), done.stderr


LOSES = program(telling.loses_a_peer)


@pytest.mark.parametrize(
    ("work", "bytes_told"),
    [
        (telling.raises, b"o"),
        (telling.loses_a_peer, b"p"),
        (telling.raises_because_of_the_loss, b"p"),
        (telling.raises_after_the_loss, b"p"),
        (telling.raises_from_none, b"o"),
        (telling.loses_a_peer_with_a_hook_that_is_silent, b"p"),
        (telling.exits, b""),
        (telling.loses_a_peer_in_a_thread, b""),
        (telling.loses_a_peer_in_a_fork, b""),
        (telling.has_a_child_that_raises, b""),
    ],
    ids=["own", "peer's", "cause", "context", "from None", "hook", "exit", "thread", "fork", "child"],
)
def test_a_process_tells_of_the_exception_that_ends_it(
    tmp_path: Path, work: Callable[[Rank], None], bytes_told: bytes
) -> None:
    assert told(tmp_path, program(work))[0] == bytes_told


def test_the_users_hook_still_shows_the_exception(tmp_path: Path) -> None:
    said, stderr = told(tmp_path, program(telling.raises_with_a_hook_that_shows_it))
    assert said == b"o"
    assert stderr.startswith("mine\nTraceback (most recent call last):\n")
    assert stderr.endswith("ValueError: boom\n")
    assert stderr.count("Traceback") == 1


def test_a_shell_between_agent_and_program(tmp_path: Path) -> None:
    assert told(tmp_path, LOSES, shell='"$@"; exit $?')[0] == b"p"


def test_another_file_at_the_pipes_number_is_left_alone(tmp_path: Path) -> None:
    assert told(tmp_path, LOSES, inode="1") == (b"", told(tmp_path, LOSES)[1])


# --- what stderr shows ---

LOST = "roundelay._core.HorovodInternalError: rank 1 raised ValueError: one\ntwo\n\nthree"
TRACE = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    f()\n    ^^^\n'


@pytest.mark.parametrize(
    ("stderr", "victim"),
    [
        (TRACE + LOST, True),
        (TRACE + LOST + "\na line\nat exit", True),
        (TRACE + LOST + "\n" * 30 + "far below", True),
        ("HorovodInternalError: rank 1 is gone", True),
        (TRACE + "ValueError: one\ntwo", False),
        (TRACE + "ValueError: no HorovodInternalError\ntwo", False),
        (TRACE + LOST + "\n" + TRACE + "ValueError: boom\ntwo", False),
        (f"Exception in thread Thread-1 (f):\n{TRACE}{LOST}\nenough", False),
        (f"Exception ignored in: <function f>\n{TRACE}{LOST}\nenough", False),
        (f"{TRACE}ValueError: Caught ValueError\nOriginal {TRACE}{LOST}", False),
        ("", False),
    ],
)
def test_the_exception_of_the_last_traceback_counts(stderr: str, victim: bool) -> None:
    tracebacks, lines = Tracebacks(), stderr.encode().splitlines()
    for line in lines:
        tracebacks.read(line)
    assert is_victim(lines[-20:], tracebacks.exception) is victim


# --- which one is named ---


def test_who_lost_a_rank_is_not_the_first_though_it_ended_before() -> None:
    lost = ending(0, 1, failed_at=1.0, victim=True)
    cause = ending(1, 5, failed_at=2.0)
    assert first_failure([lost, cause]) == cause
    assert first_failure([lost]) == lost


def test_who_told_of_its_error_first_is_the_first_though_it_ended_after() -> None:
    assert first_failure([ending(0, 1, failed_at=2.0), ending(1, 1, failed_at=1.0)]) == ending(
        1, 1, failed_at=1.0
    )


def test_who_raised_before_it_was_told_to_end_failed_by_itself() -> None:
    endings = [ending(0, 1, victim=True), ending(1, -15, stopped=True, raised=True)]
    result = job_result(endings, 2, interrupted_by=None, problem=None)
    assert (result.status, result.rank) == (1, 1)
    assert (
        result.text
        == "rank 1 (pid 101 on here) failed first: it raised an exception, and did not end in time"
    )


def gone(rank: int, host: str) -> Ending:
    return ending(rank, -9, host, unclear=True)


def test_a_rank_whose_host_is_gone_under_mpirun() -> None:
    late = ending(0, 14, "one", failed_at=1.0)
    assert first_failure([gone(2, "two"), gone(3, "two"), late]) == gone(2, "two")
    stopped = ending(0, -15, "one", stopped=True)
    assert first_failure([gone(2, "two"), stopped]) == gone(2, "two")


def test_ranks_that_mpirun_has_killed_did_not_fail() -> None:
    assert first_failure([gone(0, "one"), gone(2, "two"), gone(1, "one")]) is None
    assert first_failure([gone(1, "one"), ending(0, -15, "one", stopped=True)]) is None
    abort = ending(1, 4, "one")
    assert first_failure([abort, gone(0, "one"), gone(2, "two")]) == abort


def test_a_broken_connection_is_named() -> None:
    lost = ending(2, -9, "two", broken="Connection timed out")
    result = job_result([lost, ending(0, 1, victim=True)], 2, interrupted_by=None, problem=None)
    assert result.status == 137
    assert result.text == (
        "rank 2 (pid 102 on two) failed first: the connection to its host broke: Connection timed out"
    )
