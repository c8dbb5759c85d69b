"""Lines, prefixes, progress bars, and what is said in the end."""

from __future__ import annotations

import io
import re
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundelay.run.launcher.output import LineSplitter, Output
from roundelay.run.launcher.result import Ending, JobResult, Problem, job_result
from roundelay.run.system.processes import how


def ending(rank: int, returncode: int, stopped: bool = False) -> Ending:
    return Ending(rank, returncode, stopped, f"pid {100 + rank} on here")


@given(st.lists(st.binary(max_size=20).map(lambda data: data.replace(b"\r", b"")), max_size=30))
def test_pieces_make_the_same_lines_as_the_whole(pieces: list[bytes]) -> None:
    splitter = LineSplitter()
    lines = [line for piece in pieces for line in splitter.feed(piece, 0.0)] + splitter.close()
    whole = b"".join(pieces)
    assert lines == (whole[:-1] if whole.endswith(b"\n") else whole).split(b"\n") if whole else lines == []


def test_windows_line_ends_are_line_ends() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"one\r\ntwo\r", 0.0) + splitter.feed(b"\nthree", 0.0) == [b"one", b"two"]
    assert splitter.close() == [b"three"]


def test_a_progress_bar_is_shown_once_a_second_and_at_its_end() -> None:
    splitter = LineSplitter()
    shown: list[bytes] = []
    for step in range(101):
        shown += splitter.feed(b"\r%3d%%" % step, now=step / 20)
    assert [line.strip() for line in shown] == [b"0%", b"20%", b"40%", b"60%", b"80%", b"100%"]
    assert splitter.feed(b"\n", 5.0) == []  # it was shown already
    assert splitter.feed(b"next\n", 5.0) == [b"next"]


def test_a_progress_bar_that_pauses_is_shown_as_it_stands() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"\rfirst", 10.0) == [b"first"]
    assert splitter.feed(b"\rsecond", 10.1) == []
    assert splitter.tick(10.2) == []
    assert splitter.tick(11.1) == [b"second"]
    assert splitter.tick(13.0) == []
    assert splitter.close() == []


def test_each_line_has_its_rank_and_files_have_the_bytes(tmp_path: Path) -> None:
    stdout, stderr = io.BytesIO(), io.BytesIO()
    output = Output(2, stdout, stderr, str(tmp_path / "out"))
    output.streams[0, "stdout"].write(b"half a l", 0.0)
    output.streams[1, "stdout"].write(b"one\ntwo\nlast", 0.0)
    output.streams[0, "stdout"].write(b"ine\n", 0.0)
    output.streams[1, "stderr"].write(b"\r 5%\r10%\n", 0.0)
    output.close(0)
    output.close(1)
    assert stdout.getvalue() == b"[rank 1] one\n[rank 1] two\n[rank 0] half a line\n[rank 1] last\n"
    assert stderr.getvalue() == b"[rank 1] 10%\n"
    assert (tmp_path / "out" / "rank.1" / "stdout").read_bytes() == b"one\ntwo\nlast"
    assert (tmp_path / "out" / "rank.1" / "stderr").read_bytes() == b"\r 5%\r10%\n"
    assert (tmp_path / "out" / "rank.0" / "stderr").read_bytes() == b""
    assert output.last_lines(1) == [b"10%"]


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_colour_for_each_rank() -> None:
    terminal, file = Terminal(), io.BytesIO()
    output = Output(8, terminal, file, None, environment={"TERM": "xterm"})
    output.streams[0, "stdout"].write(b"\x1b[1mown colours\x1b[0m\n", 0.0)
    output.streams[7, "stdout"].write(b"plain\n", 0.0)
    output.streams[1, "stderr"].write(b"no terminal\n", 0.0)
    assert terminal.getvalue() == (
        b"\x1b[36m[rank 0]\x1b[0m \x1b[1mown colours\x1b[0m\n\x1b[33m[rank 7]\x1b[0m plain\n"
    )
    assert file.getvalue() == b"[rank 1] no terminal\n"


@pytest.mark.parametrize("environment", [{}, {"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}])
def test_no_colours_where_they_are_not_wanted(environment: dict[str, str]) -> None:
    terminal = Terminal()
    Output(1, terminal, terminal, None, environment=environment).streams[0, "stdout"].write(b"line\n", 0.0)
    assert terminal.getvalue() == b"[rank 0] line\n"


def test_the_time_stands_before_each_line() -> None:
    stdout = io.BytesIO()
    output = Output(1, stdout, stdout, None, timestamps=True)
    output.streams[0, "stdout"].write(b"one\ntwo\n", 0.0)
    time = rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \[rank 0\] "
    assert re.fullmatch(time + b"one\n" + time + b"two\n", stdout.getvalue())
    assert output.last_lines(0) == []


@pytest.mark.parametrize(
    ("returncode", "words"),
    [(3, "exit code 3"), (-9, "killed by SIGKILL (signal 9)"), (-63, "killed by signal 63")],
)
def test_exit_codes_in_words(returncode: int, words: str) -> None:
    assert how(returncode) == words


def test_all_is_well_whatever_mpirun_says() -> None:
    problem = Problem("mpirun itself ended the job: exit code 1", 1)
    assert job_result([ending(0, 0), ending(1, 0)], 2, interrupted_by=None, problem=problem) == JobResult(0)


def test_the_first_failure_is_the_jobs() -> None:
    endings = [ending(0, 0), ending(2, -9), ending(1, 1)]
    result = job_result(endings, 3, interrupted_by=None, problem=None)
    assert (result.status, result.rank) == (137, 2)
    assert result.text.startswith("rank 2 (pid 102 on here) failed first: killed by SIGKILL (signal 9): ")
    assert "dmesg" in result.text


def test_who_was_told_to_end_did_not_fail() -> None:
    endings = [ending(0, -15, stopped=True), ending(1, 4)]
    assert job_result(endings, 2, interrupted_by=None, problem=None).status == 4


def test_the_status_is_mpiruns_if_it_ended_the_job() -> None:
    endings = [ending(0, -15, stopped=True), ending(1, -9, stopped=True)]
    problem = Problem("mpirun itself ended the job: exit code 5", 5)
    assert job_result(endings, 2, interrupted_by=None, problem=problem) == JobResult(5, problem.text)
    assert job_result(endings, 2, interrupted_by=None, problem=None).status == 143


def test_the_users_signal_is_the_status_whatever_ranks_did() -> None:
    result = job_result([ending(0, 1)], 2, interrupted_by=signal.SIGINT, problem=Problem("x", 1))
    assert result == JobResult(130, "ended by SIGINT; no rank is left")


def test_ranks_that_never_started() -> None:
    result = job_result([ending(1, 0)], 3, interrupted_by=None, problem=None)
    assert result == JobResult(1, "mpirun ended, but never started ranks 0, 2")


def test_at_most_16_ranks_are_named() -> None:
    assert job_result([], 1, interrupted_by=None, problem=None).text.endswith("never started rank 0")
    text = job_result([], 1000, interrupted_by=None, problem=None).text
    assert text.endswith("never started ranks " + ", ".join(map(str, range(16))) + " and 984 more")
