"""Ranks that stay: a launcher starts them once, and they run one check after the other.

The checks between one init() and its shutdown() are a session: those of one setting that come one after the
other. A test asks for a check by `run_check()`, and conftest.py ends the session after the last test with its
parameters. The ranks stay for the next session. Ranks run served_checks.py and are asked over a socket.

If a check fails on some ranks and all answer, the session ends and the ranks stay. If one does not answer or
is gone, the job ends, and the next check gets new ranks.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import queue
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpi_jobs
from in_time import TooLateError

KEPT = 2  # the number of jobs of other sizes or devices that stay
START_S = 60.0
OTHERS_S = 5.0  # the time for the other ranks after the first one has failed or is gone
END_S = 20.0  # the time for shutdown()
# The beginnings of variables that a process reads at its start and not at each init().
AT_START = ("RANKS_DEVICE", "FAKE_GPU_", "OMPI_", "PYTHON")


@dataclass(frozen=True)
class Setting:
    """What a session's ranks run with.

    Args:
        np: the number of ranks.
        env: their variables, sorted.
        fresh: they are new processes.
        each: assignments of variables by each rank's shell. Such ranks are new, too.
        mpi: mpirun starts them. Otherwise roundelayrun does, and they are new.

    """

    np: int
    env: tuple[tuple[str, str], ...] = ()
    fresh: bool = False
    each: str = ""
    mpi: bool = True

    def stays(self) -> bool:
        """Returns whether the ranks stay for other sessions."""
        return self.mpi and not self.fresh and not self.each

    def at_start(self) -> dict[str, str]:
        """Returns the variables that processes start with. The others come with the session."""
        return {name: value for name, value in self.env if not self.stays() or name.startswith(AT_START)}


class Job:
    """The ranks of one launcher."""

    def __init__(self, setting: Setting) -> None:
        self.np = setting.np
        self._folder = tempfile.mkdtemp(prefix="ranks-")
        self._output: list[str] = []
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._ranks: list[socket.socket] = []
        self.whole = True  # all ranks have answered
        address = str(Path(self._folder) / "socket")
        command = [sys.executable, str(Path(__file__).with_name("served_checks.py")), address]
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen(self.np)
            listener.settimeout(START_S)
            self._process = mpi_jobs.begin(command, self.np, setting.at_start(), setting.each, setting.mpi)
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()
            with contextlib.suppress(TimeoutError):
                while len(self._ranks) < self.np:
                    self._accept(listener)

    def _accept(self, listener: socket.socket) -> None:
        rank = listener.accept()[0]
        self._ranks.append(rank)
        threading.Thread(target=self._listen, args=(rank,), daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._output.append(line)

    def _listen(self, rank: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):  # a rank that ends may do so within a line
            for line in rank.makefile():
                self._answers.put(json.loads(line))
        self._answers.put({"gone": True})

    def started(self) -> bool:
        """Returns whether all ranks have connected."""
        return len(self._ranks) == self.np

    def worth_another_try(self) -> bool:
        """Returns whether Open MPI itself failed to start, as in mpi_jobs.launch()."""
        return not self.started() and any(mpi_jobs.NOT_STARTED in line for line in self._output)

    def lines(self) -> int:
        """Returns how many lines the ranks have written."""
        return len(self._output)

    def output(self, begin: int) -> str:
        """Returns what the ranks have written from this line on. What they write arrives after a while."""
        return "".join(self._output[begin:])

    def ask(self, limit_s: float, **request: Any) -> None:
        """Returns when all ranks have done it. Otherwise raises with their reports and their output.

        Raises TooLateError if the first complaint is that time is over, and AssertionError else.
        """
        begin = self.lines() if self.started() else 0  # shows why the ranks did not start
        deadline = time.monotonic() + limit_s
        self.whole = False
        failures, missing = self._asked(json.dumps({**request, "limit_s": limit_s}), deadline)
        self.whole = not missing
        if not failures and not missing:
            return
        late = time.monotonic() >= deadline or (not self.started() and self._process.poll() is None)
        if missing:
            self.end(1.0)
            failures.append({"failed": f"{missing} of {self.np} ranks gave no answer\n", "late": late})
        reports = "".join(failure["failed"] for failure in failures)
        error = TooLateError if failures[0]["late"] else AssertionError
        raise error(f"{self.np} ranks\n{reports}{self.output(begin)}")

    def _asked(self, request: str, deadline: float) -> tuple[list[dict[str, Any]], int]:
        """Returns the failures, the first one first, and how many ranks have not answered."""
        failures: list[dict[str, Any]] = []
        missing, gone, end = self.np, 0, deadline + mpi_jobs.GRACE_S
        if not self.started():
            return failures, missing
        with contextlib.suppress(OSError):  # of a rank that is gone
            for rank in self._ranks:
                rank.sendall(request.encode() + b"\n")
        with contextlib.suppress(queue.Empty):
            while missing > gone:
                answer = self._answers.get(timeout=max(0.1, end - time.monotonic()))
                missing -= "done" in answer
                gone += "gone" in answer
                failures += [answer] if "failed" in answer else []
                if "done" not in answer:
                    end = min(end, time.monotonic() + OTHERS_S)
        return failures, missing

    def end(self, patience_s: float) -> None:
        """Closes the sockets, which ends the ranks, and kills those that do not end in time."""
        for rank in self._ranks:
            with contextlib.suppress(OSError):
                rank.shutdown(socket.SHUT_RDWR)  # the thread that reads has it open, too
            rank.close()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.terminate()  # mpirun ends its ranks, which are process groups of their own
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10.0)
            self._process.kill()
        self._reader.join(10.0)
        shutil.rmtree(self._folder, ignore_errors=True)


@dataclass(frozen=True)
class Session:
    """The job that runs checks of one setting."""

    setting: Setting
    job: Job
    begin: int  # the line of output


_jobs: dict[tuple[Any, ...], Job] = {}  # those without a session; the job that was used last comes last
_session: Session | None = None


def run_check(setting: Setting, file: str, name: str, limit_s: float) -> None:
    """Runs a check on all ranks. Raises TooLateError or AssertionError if it fails on one."""
    job = _job_of(setting, limit_s)
    with _ended_by_errors(job):
        job.ask(limit_s, do="check", file=file, name=name)


def output() -> str:
    """Returns what the ranks have written in the open session. What they write arrives after a while."""
    assert _session is not None
    return _session.job.output(_session.begin)


def _job_of(setting: Setting, limit_s: float) -> Job:
    """Returns the job of the open session, or begins another one."""
    global _session
    if _session is not None and _session.setting == setting:
        return _session.job
    end_session()
    at_start = setting.at_start()
    job = _jobs.pop(_key(setting), None) if setting.stays() else None
    while len(_jobs) >= KEPT:
        _jobs.pop(next(iter(_jobs))).end(10.0)
    job = job or Job(setting)
    if job.worth_another_try():
        job.end(10.0)
        job = Job(setting)
    _session = Session(setting, job, job.lines())
    with _ended_by_errors(job):
        job.ask(limit_s, do="begin", env={name: value for name, value in setting.env if name not in at_start})
    return job


def _key(setting: Setting) -> tuple[Any, ...]:
    return (setting.np, *setting.at_start().items())


@contextlib.contextmanager
def _ended_by_errors(job: Job) -> Iterator[None]:
    """Ends the session if the block raises: what comes next has another init()."""
    global _session
    try:
        yield
    except BaseException:
        if job.whole:
            with contextlib.suppress(AssertionError):  # the first complaint is told
                end_session()
        else:
            _session = None
            job.end(1.0)
        raise


def end_session() -> None:
    """Shuts Roundelay down on the ranks, if a session is open. Raises what run_check() raises."""
    global _session
    if _session is None:
        return
    setting, job = _session.setting, _session.job
    _session = None
    try:
        job.ask(END_S, do="end")
    except BaseException:
        job.end(1.0)
        raise
    if setting.stays():
        _jobs[_key(setting)] = job
    else:
        job.end(10.0)


@atexit.register
def end_all() -> None:
    """Ends all jobs at the end of the tests."""
    end_session()
    while _jobs:
        _jobs.popitem()[1].end(10.0)
