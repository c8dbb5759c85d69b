"""Elastic jobs of real processes, for tests: starts them, and reads what their ranks say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ROOT / "tests" / "python" / "programs"
TRAINING = str(PROGRAMS / "elastic_training.py")
MOST_S = 300.0


@contextmanager
def job(
    *flags: str,
    program: Sequence[str],
    err: Any = subprocess.PIPE,
    interpreter: str = sys.executable,
    where: Sequence[str] = (),
) -> Iterator[subprocess.Popen[str]]:
    """Run an elastic job; it is killed at the end of the block if it still runs.

    err: takes its messages. where: the first words of the command, which runs the rest on another host.
    """
    environment = {"HOROVOD_START_TIMEOUT": "100", **os.environ}  # a busy machine imports slowly
    paths = (ROOT / "python", ROOT / "tests" / "python" / "support")
    environment |= {"PYTHONPATH": ":".join(map(str, paths)), "OMP_NUM_THREADS": "1"}
    command = [*where, sys.executable, "-m", "roundelay.run.cli", *flags, interpreter, *program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def run(*flags: str, most_s: float = MOST_S, **options: Any) -> tuple[int, list[dict[str, Any]], str]:
    """Run a job to its end: its status, what its ranks said, and the launcher's lines. options: job()'s."""
    with job(*flags, **options) as process:
        out, err = process.communicate(timeout=most_s)
        return process.returncode, said(out), err


def ended_well(*flags: str, program: Sequence[str]) -> tuple[str, str]:
    """Run a job that must end well: what its ranks and its launcher have printed."""
    with job(*flags, program=program) as process:
        out, err = process.communicate(timeout=MOST_S)
    assert process.returncode == 0, err
    return out, err


def said(out: str) -> list[dict[str, Any]]:
    """Read the ranks' lines of JSON."""
    return [json.loads(line.partition("] ")[2]) for line in out.splitlines() if "] {" in line]


def began(folder: Path, *, ranks: int, generation: int = 0) -> list[int]:
    """Returns the processes of a generation; none before all its ranks have begun to train."""
    files = [folder / f"generation{generation}.rank{rank}" for rank in range(ranks)]
    pids = [file.read_text() if file.exists() else "" for file in files]
    return [int(pid) for pid in pids] if all(pids) else []


def check_ended(lines: list[dict[str, Any]], ranks: int) -> None:
    """Each rank of the last generation has checked its weights, and survivors have kept their memory."""
    done = [line for line in lines if "done" in line]
    assert sorted(line["rank"] for line in done) == list(range(ranks)), lines
    assert len({line["step"] for line in done}) == 1
    assert all(line["kept"] for line in lines if "kept" in line)
