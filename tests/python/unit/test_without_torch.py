"""The commands start without torch: that alone would take seconds, or it is not installed where they run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import starts
from ranks import ROOT

COMMANDS = ("run", "tune", "timeline", "plan", "emulate", "doctor")


@pytest.fixture
def no_torch(tmp_path: Path) -> Path:
    """A folder whose torch cannot be imported, as if there were none."""
    (tmp_path / "torch.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
    )
    return tmp_path


def roundelay(no_torch: Path, *words: str) -> tuple[int, str]:
    """The exit status and output of `python -m roundelay` where there is no torch."""
    done = subprocess.run(
        [sys.executable, "-m", "roundelay", *words],
        cwd=ROOT,
        env=starts.environment(PYTHONPATH=f"{no_torch}:{ROOT / 'python'}"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=starts.LIMIT_S,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("words", [("--version",), ("--check-build",), *((name, "-h") for name in COMMANDS)])
def test_the_commands_need_no_torch(no_torch: Path, words: tuple[str, ...]) -> None:
    status, output = roundelay(no_torch, *words)
    assert status == 0, output


def test_ranks_start_without_torch(no_torch: Path) -> None:
    status, output = roundelay(no_torch, "run", "-np", "2", "echo", "here")
    assert (status, sorted(output.splitlines())) == (0, ["[rank 0] here", "[rank 1] here"])


def test_the_doctor_misses_torch(no_torch: Path) -> None:
    status, output = roundelay(no_torch, "doctor")
    assert status == 1
    assert "No module named 'torch'" in output
    assert "PyTorch is broken. Cure: pip install" in output
    assert output.count(" is broken") == 1
