"""Runs jobs whose ranks use the core and fail, times their end, and checks that no process is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from in_time import expect_within, wait_until
from launch_job import PROMISED_S, Job, interruptible, said_until
from rank_program import Program
from ranks import ROOT, mpirun

__all__ = ["LIMIT_S", "CoreJob", "Ended", "Seen", "core_job", "go_on", "said_until"]

LIMIT_S = 240.0
SETTLE_S = 3.0  # the time that ranks may take to end after mpirun has ended


@dataclass(frozen=True)
class Seen:
    """The error that a rank raised. `at` is the time of day in seconds."""

    type: str
    text: str
    at: float

    @property
    def cause(self) -> str:
        """Returns the text without its end in parentheses, which names this rank's own operation."""
        return self.text.rpartition(" (")[0]


@dataclass(frozen=True)
class Ended:
    """The end of a job. `after_s` counts the seconds since `stamp()`."""

    status: int
    out: str
    err: str
    after_s: float
    seen: Mapping[int, Seen]

    def expect_in_time(self, promised_s: float = PROMISED_S) -> None:
        expect_within(promised_s, self.after_s, self.err)


class CoreJob(Job):
    """A job with a folder for its files."""

    def begin(self, np: int, program: Program, *, launcher: str = "roundelayrun") -> subprocess.Popen[bytes]:
        """Starts the job. `launcher` is `roundelayrun`, perhaps with flags, or plain `mpirun`."""
        name, *flags = launcher.split()
        if name == "roundelayrun":
            return self.start(np, program, *flags)
        name, _, value = self.mark.partition("=")
        environment = {
            **{
                key: text
                for key, text in os.environ.items()
                if not key.startswith(("OMPI_", "PMIX_", "PRTE_"))
            },
            name: value,
            "PYTHONPATH": str(ROOT / "python"),
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
        }
        flags = ["-np", str(np), "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
        return interruptible(
            [str(mpirun()), *flags, sys.executable, *program.words(self.folder)], environment
        )

    def ended(self, process: subprocess.Popen[bytes]) -> Ended:
        """Waits for the end of the job, and checks that no process is left."""
        with process:
            out, err = process.communicate(timeout=LIMIT_S)
        now = time.time()
        self.expect_nothing_left(within_s=SETTLE_S)
        stamp = self.folder / "failed_at"
        after_s = now - float(stamp.read_text()) if stamp.exists() else 0.0
        seen = {int(path.suffix[1:]): self._seen(path) for path in self.folder.glob("seen.[0-9]*")}
        return Ended(process.returncode, out.decode(), err.decode(), after_s, seen)

    def conduct(self, np: int, program: Program, *, launcher: str = "roundelayrun") -> Ended:
        """Starts a job and waits for its end."""
        return self.ended(self.begin(np, program, launcher=launcher))

    def wait_for(self, name: str) -> None:
        """Waits until the job has written a file of this name."""
        wait_until((self.folder / name).exists, LIMIT_S, f"no {name}")

    def await_ranks(self, count: int) -> list[int]:
        """Waits until all ranks have passed `init()`, and returns their pids."""
        for rank in range(count):
            self.wait_for(f"ready.{rank}")
        return self.wait_ready(count)

    @staticmethod
    def _seen(path: Path) -> Seen:
        return Seen(**json.loads(path.read_text()))


def go_on(pid: int) -> None:
    """Continues a stopped process. Does nothing if it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
def core_job(tmp_path: Path) -> Iterator[CoreJob]:
    job = CoreJob(tmp_path)
    yield job
    job.end()
