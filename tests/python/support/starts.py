"""Starts programs as a user's shell would: their environment has no variables of an outer launcher."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ranks import ROOT, mpirun

LIMIT_S = 240.0
_OUTER = (
    "OMP_", "OMPI_", "PMIX_", "PRTE_", "PMI_", "SLURM_", "TORCHELASTIC_", "PET_", "ROUNDELAY_", "HOROVOD_",
)  # fmt: skip
_NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def environment(**more: str) -> dict[str, str]:
    """Returns the environment without launchers' variables, and with mpirun and this Python on PATH."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OUTER) and name not in _NUMBERS
    }
    tools = [str(Path(sys.executable).parent), *([str(Path(str(mpirun())).parent)] if mpirun() else [])]
    return {
        **kept,
        "PATH": os.pathsep.join([*tools, os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "ROUNDELAY_START_TIMEOUT": "120",  # a busy machine starts one rank long after another
        **more,
    }


def run(command: Sequence[str], **more: str) -> tuple[int, str]:
    """Runs a command. Returns its exit status, and stdout and stderr in the order of arrival."""
    return run_all([(command, more)])[0]


def run_all(commands: Sequence[tuple[Sequence[str], Mapping[str, str]]]) -> list[tuple[int, str]]:
    """Runs commands at the same time, each with its variables, in the repository's root, as the docs do."""
    processes = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(**more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for command, more in commands
    ]
    deadline = time.monotonic() + LIMIT_S
    try:
        outputs = [process.communicate(timeout=deadline - time.monotonic())[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]


def free_port() -> str:
    """Returns a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
ROUNDELAYRUN = [sys.executable, "-m", "roundelay.run.cli"]
