"""Frameworks over DDP, in published versions: they train over the backend roundelay, with hooks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import get_clients
from ranks import ROOT

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ROUNDELAYRUN = ["roundelay.run.cli", "-np", "2", sys.executable]


def _train(framework: str, launcher: list[str], folder: Path) -> str:
    """Runs a training to its end, and returns its output."""
    path = os.pathsep.join([str(get_clients.get(framework)), str(ROOT / "python")])
    done = subprocess.run(
        [sys.executable, *launcher, str(HERE / f"{framework}_ddp.py"), str(folder)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("launcher", [TORCHRUN, ROUNDELAYRUN], ids=lambda words: words[0].split(".")[0])
@pytest.mark.parametrize("framework", ["lightning", "transformers", "ignite"])
def test_a_framework_trains(framework: str, launcher: list[str], tmp_path: Path) -> None:
    out = _train(framework, ["-m", *launcher], tmp_path)
    for rank in range(2):
        assert f"trained {rank}" in out


def test_ray_starts_its_own_workers(tmp_path: Path) -> None:
    assert "trained 0 and 1" in _train("ray", [], tmp_path)
