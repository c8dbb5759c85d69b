"""Ranks that stay: mpirun starts them once, and they run the checks of one file after the other.

A test calls `run()`, a rank runs `main()`. They talk over a socket: each request is a line of JSON, and the
answer is "done" if all checks passed. If a check fails, its rank ends, mpirun ends the others, and the next
file gets new ranks.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import mpi_jobs
import rank_checks

KEPT = 2  # the number of jobs of other sizes or devices that stay
START_S = 60.0
# The beginnings of variables that a process reads at its start and not at each init().
AT_START = ("RANKS_DEVICE", "FAKE_GPU_", "OMPI_", "PYTHON")


@dataclass(frozen=True)
class Answer:
    """The end of some checks. `output` is that of all ranks. `timed_out`: the time was over before."""

    passed: bool
    timed_out: bool
    output: str


class Job:
    """The ranks of one mpirun."""

    def __init__(self, np: int, env: Mapping[str, str]) -> None:
        self.np = np
        self._folder = tempfile.mkdtemp(prefix="ranks-")
        self._output: list[str] = []
        address = str(Path(self._folder) / "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen(np)
            listener.settimeout(START_S)
            self._process = mpi_jobs.begin([sys.executable, __file__, address], np, env)
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()
            self._ranks: list[socket.socket] = []
            with contextlib.suppress(TimeoutError):
                while len(self._ranks) < np:
                    self._ranks.append(listener.accept()[0])

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._output.append(line)

    def started(self) -> bool:
        """Returns whether all ranks have connected."""
        return len(self._ranks) == self.np

    def worth_another_try(self) -> bool:
        """Returns whether Open MPI itself failed to start, as in mpi_jobs.launch()."""
        return not self.started() and any(mpi_jobs.NOT_STARTED in line for line in self._output)

    def run(self, files: Sequence[str], limit_s: float, env: Mapping[str, str]) -> Answer:
        """Returns how the checks ended on all ranks. If not all passed, the job has ended."""
        begin = len(self._output) if self.started() else 0  # shows why the ranks did not start
        request = json.dumps({"files": list(files), "limit_s": limit_s, "env": dict(env)}) + "\n"
        deadline = time.monotonic() + limit_s
        passed = self.started() and self._ask(request.encode(), deadline + mpi_jobs.GRACE_S)
        timed_out = (not self.started() and self._process.poll() is None) or time.monotonic() >= deadline
        if not passed:
            self.end(10.0)
        return Answer(passed, timed_out, "".join(self._output[begin:]))

    def _ask(self, request: bytes, deadline: float) -> bool:
        """Returns whether all ranks are done in time."""
        try:
            for rank in self._ranks:
                rank.sendall(request)
            for rank in self._ranks:
                rank.settimeout(max(0.1, deadline - time.monotonic()))
                if rank.recv(16) != b"done\n":
                    return False
        except OSError:
            return False
        return True

    def end(self, patience_s: float) -> None:
        """Closes the sockets, which ends the ranks, and kills those that do not end in time."""
        for rank in self._ranks:
            rank.close()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.terminate()  # mpirun ends its ranks, which are process groups of their own
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)
            self._process.kill()
        self._reader.join(patience_s)
        shutil.rmtree(self._folder, ignore_errors=True)


_jobs: dict[tuple[Any, ...], Job] = {}  # the job that was used last comes last


def run(files: Sequence[str], np: int, limit_s: float, env: Mapping[str, str]) -> Answer:
    """Runs the checks of `files` on all ranks."""
    at_start = {name: value for name, value in env.items() if name.startswith(AT_START)}
    key = (np, *sorted(at_start.items()))
    job = _jobs.pop(key, None)
    while len(_jobs) >= KEPT:
        _jobs.pop(next(iter(_jobs))).end(10.0)
    job = job or Job(np, at_start)
    if job.worth_another_try():
        job.end(10.0)
        job = Job(np, at_start)
    answer = job.run(files, limit_s, {name: env[name] for name in env.keys() - at_start.keys()})
    if answer.passed:
        _jobs[key] = job
    return answer


@atexit.register
def end_all() -> None:
    """Ends all jobs at the end of the tests."""
    while _jobs:
        _jobs.popitem()[1].end(10.0)


def main(address: str) -> None:
    """Runs one rank: connects to `address` and handles requests until the socket is closed."""
    rank_checks.prepare()
    with socket.socket(socket.AF_UNIX) as tests:
        tests.connect(address)
        for line in tests.makefile():
            request = json.loads(line)
            with mock.patch.dict(os.environ, request["env"]):
                rank_checks.main(request["files"], request["limit_s"])
            gc.collect()
            tests.sendall(b"done\n")


if __name__ == "__main__":
    main(sys.argv[1])
