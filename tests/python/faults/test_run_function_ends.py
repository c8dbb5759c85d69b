"""`roundelay.run(func)` when a rank fails or hangs, when the caller is interrupted or dies; a notebook."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import roundelay
from in_time import expect_within, wait_until
from launch_job import LIMIT_S, PROMISED_S, Job, interruptible
from programs import notebook_kernel, run_caller
from ranks import ROOT
from roundelay.run.function import launcher_process as calling


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """Finds what is left: the ranks inherit its mark. (This process's own environ file is from its start.)"""
    job = Job(tmp_path)
    monkeypatch.setenv(*job.mark.split("="))
    yield job
    job.end()


def rank() -> int:
    return int(os.environ["RANK"])


def test_an_exception_keeps_its_type_and_its_traceback(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    class OwnError(Exception):
        pass

    def deep() -> None:
        raise OwnError("boom", rank())

    def work() -> None:
        if rank() == 1:
            deep()
        time.sleep(60)

    started = time.monotonic()
    with pytest.raises(OwnError) as raised:
        roundelay.run(work, np=3)
    expect_within(LIMIT_S, time.monotonic() - started)
    job.expect_nothing_left(within_s=0.5)
    assert raised.value.args == ("boom", 1)
    cause = str(raised.value.__cause__)
    assert cause.startswith("\nrank 1:\nTraceback (most recent call last):\n  File")
    assert re.search(r"in work\n.*in deep\n.*\n(.*\n)?.*OwnError: \('boom', 1\)$", cause, re.DOTALL)
    assert "worker.py" not in cause
    assert "[rank 1] Traceback (most recent call last):" in capsys.readouterr().err


class TwoWordsError(Exception):
    """Comes out of pickle with another number of arguments than it takes."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


def raise_two_words() -> None:
    raise TwoWordsError("a", "b")


def interrupt() -> None:
    raise KeyboardInterrupt


def leave_text() -> None:
    sys.exit("enough")


@pytest.mark.parametrize(
    ("func", "error", "text"),
    [
        (raise_two_words, RuntimeError, r"(?s)^rank 0 failed:\nTraceback .*TwoWordsError: ab$"),
        (threading.Lock, TypeError, r"^the function's result, a _thread\.lock, cannot be pickled"),
        (interrupt, RuntimeError, "(?s)^rank 0 failed:\nTraceback .*KeyboardInterrupt$"),
        (sys.exit, RuntimeError, r"^rank 0 failed:\nthe function called sys\.exit\(\)$"),
        (leave_text, RuntimeError, r"^rank 0 failed:\nthe function called sys\.exit\('enough'\)$"),
        (
            lambda: os._exit(0),
            RuntimeError,
            "^rank 0 ended with exit code 0 before its function had returned$",
        ),
        (lambda: os._exit(7), RuntimeError, r"^rank 0 \(pid \d+ on \S+\) failed first: exit code 7$"),
    ],
    ids=["not unpickled", "result", "KeyboardInterrupt", "exit", "exit text", "_exit 0", "_exit 7"],
)
def test_every_other_end_of_the_function_is_a_failure(func: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        roundelay.run(func)


def test_the_peers_hear_which_exception_ended_a_rank(job: Job) -> None:
    """And not that the rank has called shutdown(), which its exit does."""

    def work(folder: str) -> None:
        import torch

        import roundelay.torch as hvd

        hvd.init()
        try:
            hvd.barrier()
            if hvd.rank() == 1:
                raise KeyError("label")
            hvd.allreduce(torch.ones(1))
        except hvd.HorovodInternalError as error:
            Path(folder, "heard").write_text(str(error))
            raise

    with pytest.raises(KeyError, match="label"):
        roundelay.run(work, (str(job.folder),), np=2)
    assert (job.folder / "heard").read_text().startswith("rank 1 raised KeyError: 'label'")


def test_a_killed_rank_is_named_with_its_last_words(job: Job) -> None:
    def work() -> None:
        if rank() == 1:
            print("the last words", file=sys.stderr)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    with pytest.raises(
        RuntimeError, match=r"rank 1 \(pid \d+ on \S+\) failed first: killed by SIGKILL"
    ) as raised:
        roundelay.run(work, np=2)
    assert str(raised.value).endswith("its last lines on stderr:\n  the last words")
    job.expect_nothing_left(within_s=0.5)


@pytest.mark.slow
def test_results_are_there_although_a_process_does_not_end(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "END_GRACE_S", 3.0)

    def hang() -> int:
        if rank() == 1:
            threading.Thread(target=time.sleep, args=(600,)).start()
        return rank()

    with pytest.warns(
        RuntimeWarning, match=r"not every rank ended well by itself: .*rank 1 \(told to end\)"
    ) as seen:
        assert roundelay.run(hang, np=2) == [0, 1]
    assert seen[0].filename == __file__
    job.expect_nothing_left(within_s=0.5)


def test_an_exception_is_there_although_the_process_does_not_end(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calling, "END_GRACE_S", 0.5)

    def hang() -> None:
        threading.Thread(target=time.sleep, args=(600,)).start()
        raise KeyError("boom")

    with pytest.raises(KeyError, match="boom"):
        roundelay.run(hang)
    job.expect_nothing_left(within_s=0.5)


def parent_of(pid: int) -> int:
    return int(re.findall(r"PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0])


def test_a_killed_launcher(job: Job) -> None:
    def work() -> None:
        if rank() == 0:
            agent = os.getppid()
            os.kill(parent_of(parent_of(agent)), signal.SIGKILL)
        time.sleep(60)

    with pytest.raises(RuntimeError, match=r"^the launcher itself ended: killed by SIGKILL \(signal 9\)$"):
        roundelay.run(work, np=2)
    job.expect_nothing_left(within_s=PROMISED_S)


class Broken:
    """A sys.stdout that cannot be written to."""

    def write(self, _text: str) -> None:
        raise OSError("no")

    def flush(self) -> None:
        pass


def test_output_that_cannot_be_shown_ends_the_ranks(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def talk() -> None:
        while True:
            print("y" * 1000)

    monkeypatch.setattr(sys, "stdout", Broken())
    with pytest.raises(OSError, match="^no$"):
        roundelay.run(talk, np=2)
    job.expect_nothing_left(within_s=0.5)


@contextlib.contextmanager
def start(job: Job, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONUNBUFFERED": "1"}
    with interruptible(
        [sys.executable, run_caller.__file__, str(job.folder), *arguments], environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()  # a test that fails waits for nobody


def test_ctrl_c_ends_all_ranks_in_order(job: Job) -> None:
    with start(job, "") as process:
        job.wait_known(process, 2)
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        status, out, err = job.finish(process)
    expect_within(PROMISED_S + 5, time.monotonic() - started)
    assert (status, err) == (0, "")
    *tidied, last = out.splitlines()
    assert sorted(tidied) == ["[rank 0] tidied up", "[rank 1] tidied up"]
    assert last == "interrupted ['and on it goes']"


@pytest.mark.slow
def test_ctrl_c_twice_ends_stubborn_ranks_at_once(job: Job) -> None:
    with start(job, "stubborn") as process:
        job.wait_known(process, 2)
        process.send_signal(signal.SIGINT)
        # Two signals at once would be one to a process that has not run since.
        wait_until(lambda: len(list(job.folder.glob("told.*"))) == 2, LIMIT_S, "the ranks were not told")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        status, out, _ = job.finish(process)
    expect_within(PROMISED_S, time.monotonic() - started)
    assert (status, out) == (0, "interrupted ['and on it goes']\n")


@pytest.mark.parametrize("stubborn", ["", "stubborn"])
def test_nothing_outlives_a_killed_caller(job: Job, stubborn: str) -> None:
    with start(job, stubborn) as process:
        job.wait_ready(2)
        assert len(job.left()) >= 7  # the caller, the launcher, the starter, two agents, two ranks
        process.kill()
        job.expect_nothing_left(within_s=PROMISED_S + 5)


def test_run_works_in_a_notebook(job: Job) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(
        [sys.executable, notebook_kernel.__file__],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    *said, last = done.stdout.splitlines()
    assert sorted(said) == ["[rank 0] rank 0", "[rank 1] rank 1"]
    assert last == "[7, 7]"
    job.expect_nothing_left(within_s=0.5)
