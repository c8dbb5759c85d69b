"""Runs jobs whose ranks use the core and fail, times their end, and checks that no process is left.

A body is the code that each rank runs after `hvd.init()`. It may use `rank`, `hvd`, `torch`, `stamp()` (notes
the time of the failure), `during(seconds, action)`, and `watched()`, which records the error that a block
raises and raises it again. `die_watched(seconds)` kills the rank so long after all others have come there.
"""

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
from launch_job import PROGRAM, PROMISED_S, Job, said_until
from ranks import ROOT, mpirun

__all__ = [
    "INIT", "LIMIT_S", "PRELUDE", "CoreJob", "Ended", "Seen", "core_job", "go_on", "said_until",
]  # fmt: skip

LIMIT_S = 240.0
SETTLE_S = 3.0  # the time that ranks may take to end after mpirun has ended

PRELUDE = """
import contextlib, faulthandler, json, threading
faulthandler.dump_traceback_later(200, exit=True)
import torch
import roundelay.torch as hvd
torch.set_num_threads(1)

def during(seconds, action):
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()

def die():
    stamp()
    os.kill(os.getpid(), signal.SIGKILL)

def die_watched(seconds):
    others = [Path(sys.argv[1], f"watching.{other}") for other in range(hvd.size()) if other != rank]
    def wait():
        while not all(other.exists() for other in others): time.sleep(0.01)
        time.sleep(seconds)
        die()
    during(0.0, wait)

def note(error):
    seen = {"type": type(error).__name__, "text": str(error), "at": time.time()}
    path = Path(sys.argv[1], f"seen.{rank}")
    part = Path(sys.argv[1], f"part.{rank}")
    part.write_text(json.dumps(seen))
    part.rename(path)

@contextlib.contextmanager
def watched():
    try:
        Path(sys.argv[1], f"watching.{rank}").touch()
        yield
    except Exception as error:
        note(error)
        raise
"""
INIT = "hvd.init()\nready()\n"


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

    def begin(
        self, np: int, body: str, *, launcher: str = "roundelayrun", prelude: str = PRELUDE + INIT
    ) -> subprocess.Popen[bytes]:
        """Starts the job. `launcher` is `roundelayrun`, perhaps with flags, or plain `mpirun`."""
        name, *flags = launcher.split()
        if name == "roundelayrun":
            return self.start(np, prelude + body, *flags)
        script = self.folder / "program.py"
        script.write_text(PROGRAM + prelude + body)
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
        return subprocess.Popen(
            [str(mpirun()), *flags, sys.executable, str(script), str(self.folder)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
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

    def conduct(self, np: int, body: str, *, launcher: str = "roundelayrun") -> Ended:
        """Starts a job and waits for its end."""
        return self.ended(self.begin(np, body, launcher=launcher))

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
