"""The same unchanged script gives the same result, to the bit, whatever starts it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import starts
from launched import SCRIPT, check, results
from ranks import PROGRAMS, mpirun

pytestmark = pytest.mark.slow

SRUN = str(Path(__file__).parent / "srun.py")
# What starts it, on how many ranks, and how they should have met.
LAUNCHERS = {
    "nothing": ([sys.executable], 1, ["single"]),
    "roundelayrun": ([*starts.ROUNDELAYRUN, "-np", "2", sys.executable], 2, ["store", "mpi"]),
    "roundelayrun --gloo": ([*starts.ROUNDELAYRUN, "-np", "2", "--gloo", sys.executable], 2, ["store"]),
    "roundelayrun --mpi": ([*starts.ROUNDELAYRUN, "-np", "2", "--mpi", sys.executable], 2, ["mpi"]),
    "mpirun": ([*starts.MPIRUN, "-np", "2", sys.executable], 2, ["mpi"]),
    "torchrun": ([*starts.TORCHRUN, "--standalone", "--nproc-per-node", "2"], 2, ["store"]),
    "srun": ([sys.executable, SRUN, "-n", "2", sys.executable], 2, ["store"]),
}


def _as_parameter(name: str) -> Any:
    """Other tests use these all the time."""
    return pytest.param(name, marks=pytest.mark.nightly if name.startswith("roundelayrun --") else ())


@pytest.mark.parametrize("name", [_as_parameter(name) for name in LAUNCHERS])
def test_every_launcher_gives_the_same_weights(name: str, tmp_path: Path) -> None:
    launcher, size, bootstraps = LAUNCHERS[name]
    if bootstraps == ["mpi"] and mpirun() is None:
        pytest.skip("no mpirun")
    status, output = starts.run([*launcher, SCRIPT, str(tmp_path)])
    assert status == 0, output
    said = results(tmp_path)
    check(said, [size])
    assert {one["bootstrap"] for one in said} < {*bootstraps, ""}


def test_same_result_as_a_function(tmp_path: Path) -> None:
    """roundelay.run ships the script's own function, and returns what it returns."""
    pytest.importorskip("roundelay.run.function", reason="no roundelay.run in this version")
    program = str(PROGRAMS / "main_as_function.py")
    status, output = starts.run([sys.executable, program, SCRIPT, str(tmp_path)])
    assert status == 0, output
    check(results(tmp_path), [2])
    returned = json.loads(output.partition("said")[2])
    assert returned == results(tmp_path)
