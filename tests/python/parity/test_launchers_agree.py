"""The same script, global batch and seed give the same losses however it is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ranks import ROOT, launch

pytestmark = pytest.mark.slow

STEPS = 50
# The rate is low: where losses fall fast, a last bit that differs between sums grows.
OPTIONS = ["--epochs", "2", "--width", "16", "--rate", "0.03"]
SCRIPT = [sys.executable, str(ROOT / "examples" / "digits.py"), *OPTIONS]


def losses(path: Path) -> list[float]:
    values: list[float] = json.loads(path.read_text())
    assert len(values) == STEPS
    return values


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of one process without a launcher."""
    path = tmp_path_factory.mktemp("alone") / "losses.json"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "python")}
    subprocess.run([*SCRIPT, "--save-losses", str(path)], env=env, check=True, timeout=120)
    return losses(path)


def test_losses_fall(alone: list[float]) -> None:
    assert sum(alone[-10:]) < sum(alone[:10])


@pytest.mark.nightly
@pytest.mark.parametrize("np", [2, 4])
def test_mpirun(np: int, alone: list[float], tmp_path: Path) -> None:
    run = launch([*SCRIPT, "--save-losses", str(tmp_path / "losses.json")], np, limit_s=120)
    assert run.returncode == 0, run.output
    assert losses(tmp_path / "losses.json") == pytest.approx(alone, rel=1e-4)


def test_roundelayrun(alone: list[float], tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, "-m", "roundelay.cli", "run", "-np", "2", *SCRIPT]
    done = subprocess.run(
        [*command, "--save-losses", str(tmp_path / "losses.json")],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert losses(tmp_path / "losses.json") == pytest.approx(alone, rel=1e-4)
