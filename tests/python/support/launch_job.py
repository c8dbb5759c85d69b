"""A job under roundelayrun. A mark in its processes' environment lets tests find processes that it leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from in_time import crowd, wait_until
from rank_program import Program
from ranks import ROOT, mpirun

LIMIT_S = 100.0
PROMISED_S = 5.0  # the longest time from a failure to the job's end


@dataclass
class Job:
    """A roundelayrun. All its processes have the variable `mark` in their environment."""

    folder: Path
    way: tuple[str, ...] = ()  # flags that choose how roundelayrun starts the ranks: () or ("--mpi",)
    bin: Path | None = None  # the folder of the test's own mpirun
    mark: str = field(default_factory=lambda: f"ROUNDELAY_RUN_TEST_MARK={uuid.uuid4().hex}")

    def start(self, np: int, program: Program, *flags: str) -> subprocess.Popen[bytes]:
        name, _, value = self.mark.partition("=")
        environment = {
            **{
                key: text
                for key, text in os.environ.items()
                if not key.startswith(("OMP_", "OMPI_", "PMIX_", "PRTE_"))
            },
            name: value,
            "PYTHONPATH": str(ROOT / "python"),
            "PATH": os.pathsep.join([str(self.bin or Path(str(mpirun())).parent), os.environ["PATH"]]),
        }
        command = [sys.executable, "-m", "roundelay.run.cli", "-np", str(np), *self.way, *flags]
        return interruptible([*command, sys.executable, *program.words(self.folder)], environment)

    def run(self, np: int, program: Program, *flags: str) -> tuple[int, str, str]:
        with self.start(np, program, *flags) as process:
            return self.finish(process)

    def finish(self, process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
        out, err = process.communicate(timeout=LIMIT_S)
        self.expect_nothing_left(within_s=0.5)
        return process.returncode, out.decode(), err.decode()

    def wait_ready(self, count: int) -> list[int]:
        """Waits until all ranks run, and returns their pids."""
        files = [self.folder / f"ready.{rank}" for rank in range(count)]
        # A file may exist and still be empty.
        wait_until(lambda: all(file.exists() and file.read_text() for file in files), LIMIT_S, "not all run")
        return [int(file.read_text()) for file in files]

    def wait_known(self, process: subprocess.Popen[bytes], count: int) -> None:
        """Waits until all ranks run and a launcher that was started with --verbose has heard of them.

        A rank's program may run before its agent has called in. A signal ends such a job at once.
        """
        for _ in range(count):
            said_until(process, " is pid ")
        self.wait_ready(count)

    def seconds_since_failure(self) -> float:
        return time.time() - float((self.folder / "failed_at").read_text())

    def left(self) -> list[str]:
        """Returns a line for each process of this job that still runs."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(f"{entry.name}: {(entry / 'cmdline').read_text()}")
            except OSError:
                continue
        return found

    def end(self) -> None:
        """Kills the processes that a failed test has left."""
        for line in self.left():
            os.kill(int(line.partition(":")[0]), signal.SIGKILL)

    def expect_nothing_left(self, within_s: float) -> None:
        deadline = time.monotonic() + within_s * crowd()
        while left := self.left():  # which no second run excuses
            assert time.monotonic() < deadline, f"processes are left {left}"
            time.sleep(0.02)


def not_ignoring(*signals: signal.Signals) -> Callable[[], None]:
    """Returns a `preexec_fn`: what nohup and shells' background have processes ignore is inherited."""

    def restore() -> None:
        for signum in signals:
            signal.signal(signum, signal.SIG_DFL)

    return restore


def interruptible(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Starts a process that Ctrl-C ends."""
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # what said_until() has not returned, communicate() returns
        preexec_fn=not_ignoring(signal.SIGINT),
    )


def state_of(pid: int) -> str:
    """Returns the kernel's letter for what a process does: "T" if it is stopped, "Z" if it has ended.

    Who has ended stays in the kernel's list until its parent has noticed; this makes no difference here.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def said_until(process: subprocess.Popen[bytes], text: str) -> list[str]:
    """Reads what the job says on stderr up to the first line with this text."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line.decode())
        if text in lines[-1]:
            return lines
    raise AssertionError(f"nobody said {text!r}\n{''.join(lines)}")
