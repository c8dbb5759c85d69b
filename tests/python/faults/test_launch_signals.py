"""Signals that do not end a job: ignored ones, and those that the launcher forwards. Closed descriptors."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from hosts_here import local_ssh
from in_time import wait_until
from launch_job import LIMIT_S, Job
from programs import ending
from rank_program import program
from ranks import ROOT


@pytest.fixture
def ignoring_hangups() -> Iterator[None]:
    """Of this process and those that it starts, as nohup does."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("ignoring_hangups")
def test_a_job_that_ignores_hangups_goes_on(job: Job) -> None:
    with job.start(2, program(ending.says_whether_hangups_are_ignored), "--verbose") as process:
        job.wait_known(process, 2)
        process.send_signal(signal.SIGHUP)
        if not job.way:  # mpirun handles the signal itself; no terminal sends it one
            for line in job.left():
                os.kill(int(line.partition(":")[0]), signal.SIGHUP)
        (job.folder / "go").touch()
        status, out, _ = job.finish(process)
    assert status == 0
    ignored = not job.way
    assert sorted(out.splitlines()) == [f"[rank 0] {ignored}", f"[rank 1] {ignored}"]


FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)


def has(folder: Path, pattern: str, count: int) -> bool:
    return len(list(folder.glob(pattern))) == count


def check_forwarded(job: Job, *flags: str) -> None:
    with job.start(2, program(ending.tells_of_forwarded_signals), "--verbose", *flags) as process:
        job.wait_known(process, 2)
        for signum in FORWARDED:
            process.send_signal(signum)
            told = f"told.*.{int(signum)}"
            wait_until(partial(has, job.folder, told, 2), LIMIT_S, f"{signum!r} is not forwarded")
        (job.folder / "go").touch()
        status, _, err = job.finish(process)
    assert status == 0, err


def test_signals_for_the_program_are_forwarded(job: Job) -> None:
    check_forwarded(job)


def test_signals_are_forwarded_to_other_hosts(tmp_path: Path) -> None:
    job = Job(tmp_path, way=("--gloo",), bin=local_ssh(tmp_path))
    check_forwarded(job, "-H", "127.0.0.2:1,127.0.0.3:1")


def test_a_program_that_does_not_expect_the_signal_dies_of_it(job: Job) -> None:
    with job.start(1, program(ending.sleeps), "--verbose") as process:
        job.wait_known(process, 1)
        process.send_signal(signal.SIGUSR1)
        status, _, err = job.finish(process)
    assert status == 128 + signal.SIGUSR1
    assert re.search(r"rank 0 \(pid \d+ on \S+\) failed first: killed by SIGUSR1 \(signal 10\)$", err.strip())


# --- descriptors ---


def under_shell(redirections: str, script: str, **variables: str) -> tuple[int, str, str]:
    """The status, stdout and stderr of a job of one rank that a shell starts."""
    launcher = [sys.executable, "-m", "roundelay.run.cli", "-np", "1", "sh", "-c", script]
    done = subprocess.run(
        ["sh", "-c", f'"$@" {redirections}', "sh", *launcher],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), **variables},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("redirections", "out", "err"),
    [
        ("<&-", "[rank 0] out\n", "[rank 0] err\n"),
        (">&-", "", "[rank 0] err\n"),
        ("2>&-", "[rank 0] out\n", ""),
        ("<&- >&- 2>&-", "", ""),
    ],
)
def test_ranks_run_where_a_descriptor_is_closed(redirections: str, out: str, err: str) -> None:
    assert under_shell(redirections, "cat; echo out; echo err >&2") == (0, out, err)


def test_a_full_disk() -> None:
    status, _, err = under_shell(">/dev/full", "echo out; sleep 60")
    assert status == 1
    assert err == "roundelayrun: cannot write the ranks' output: No space left on device\n"


def test_warnings_that_are_errors() -> None:
    assert under_shell("", "echo out", PYTHONWARNINGS="error") == (0, "[rank 0] out\n", "")
