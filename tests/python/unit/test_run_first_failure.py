"""Which rank failed first: by what the ranks told of their exceptions, by stderr, by lost connections."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from ranks import ROOT
from roundelay._internal import error_report
from roundelay.run.launcher.result import Ending, first_failure, is_victim, job_result
from roundelay.run.launcher.tracebacks import Tracebacks

LIMIT_S = 60.0


def ending(rank: int, returncode: int, host: str = "here", **more: object) -> Ending:
    return replace(Ending(rank, returncode, False, f"pid {100 + rank} on {host}"), **more)  # type: ignore[arg-type]


# --- what a process tells ---

PRELUDE = """
import sys, threading, types
sys.path.insert(0, sys.argv[1])
import roundelay
class HorovodInternalError(RuntimeError): pass
class MismatchError(HorovodInternalError): pass
sys.modules["roundelay._core"] = types.SimpleNamespace(HorovodInternalError=HorovodInternalError)
def lose():
    raise MismatchError("rank 1 raised ValueError: one\\ntwo")
"""


def told(program: str, *, shell: str = 'exec "$@"', inode: str | None = None) -> tuple[bytes, str]:
    """What a program under a shell tells its agent, and what it writes to stderr."""
    ours, theirs = os.pipe()
    pipe = error_report.named(theirs) if inode is None else f"{theirs}:{inode}"
    command = ["bash", "-c", shell, "bash", sys.executable, "-c", PRELUDE + program, str(ROOT / "python")]
    with os.fdopen(ours, "rb") as reader:
        try:
            done = subprocess.run(
                command,
                env={**os.environ, error_report.PIPE: pipe},
                pass_fds=[theirs],
                stderr=subprocess.PIPE,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        finally:
            os.close(theirs)
        return reader.read(), done.stderr


@pytest.mark.parametrize(
    ("program", "bytes_told"),
    [
        ("raise ValueError('one\\ntwo')", b"o"),
        ("lose()", b"p"),
        ("try: lose()\nexcept RuntimeError as error: raise ValueError from error", b"p"),
        ("try: lose()\nfinally: {}['gone']", b"p"),
        ("try: lose()\nexcept RuntimeError: raise ValueError from None", b"o"),
        ("sys.excepthook = lambda *_: None\nlose()", b"p"),
        ("sys.exit(3)", b""),
        ("threading.Thread(target=lose).start()", b""),
        ("import os\nif os.fork() == 0: lose()\nos.wait()", b""),
        (
            "import os, subprocess\nassert 'ROUNDELAY_RUN_ERROR' not in os.environ\n"
            "subprocess.run([sys.executable, '-c', 'import roundelay; 1 / 0'], close_fds=False)",
            b"",
        ),
    ],
    ids=["own", "peer's", "cause", "context", "from None", "hook", "exit", "thread", "fork", "child"],
)
def test_a_process_tells_of_the_exception_that_ends_it(program: str, bytes_told: bytes) -> None:
    assert told(program)[0] == bytes_told


def test_the_users_hook_still_shows_the_exception() -> None:
    program = (
        "before = sys.excepthook\nsys.excepthook = lambda *a: (print('mine', file=sys.stderr), before(*a))"
    )
    said, stderr = told(f"{program}\nraise ValueError('boom')")
    assert said == b"o"
    assert stderr.startswith("mine\nTraceback (most recent call last):\n")
    assert stderr.endswith("ValueError: boom\n")
    assert stderr.count("Traceback") == 1


def test_a_shell_between_agent_and_program() -> None:
    assert told("lose()", shell='"$@"; exit $?')[0] == b"p"


def test_another_file_at_the_pipes_number_is_left_alone() -> None:
    assert told("lose()", inode="1") == (b"", told("lose()")[1])


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
