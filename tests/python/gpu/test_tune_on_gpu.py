"""`roundelay tune` over MPI on the memory of GPUs, fake ones, and a job that goes by its file."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from pathlib import Path

import pytest

import starts
from ranks import PATHS, PROGRAMS
from roundelay.tuning import file as tuning_file
from roundelay.tuning.file import ALGORITHMS, GPU, Choice, Level

pytestmark = [pytest.mark.slow]
WORK = str(PROGRAMS / "broadcast_on_gpu_and_cpu.py")
TUNE = [sys.executable, "-m", "roundelay.cli", "tune", "-np", "2", "--sizes", "1K", "64K", "--rounds", "1"]


@pytest.fixture
def variables() -> dict[str, str]:
    """Returns the variables of a job over MPI whose ranks have the fake device."""
    path = os.pathsep.join(map(str, (PROGRAMS / "fake_gpu_for_ranks", *PATHS)))
    return {"PYTHONPATH": path, "ROUNDELAY_GPU_FABRIC": "mpi"}


def test_a_file_has_the_level_gpu_and_jobs_go_by_it(tmp_path: Path, variables: dict[str, str]) -> None:
    path = tmp_path / "tuning.json"
    status, output = starts.run([*TUNE, "--mpi", "--output", str(path)], **variables)
    assert status == 0, output
    tuning = tuning_file.load(path)
    assert tuning.cluster.levels == (Level("node", 2), Level(GPU, 2))
    measured = {(one.operation, one.algorithm) for one in tuning.measured if one.level == GPU}
    assert measured == {(op, name) for op, names in ALGORITHMS.items() if len(names) > 1 for name in names}
    assert {one.operation for one in tuning.table if one.level == GPU} == {op for op, _ in measured}
    assert tuning.link(GPU) is not None

    choice = Choice(GPU, "broadcast", 2, None, "pipelined_tree")  # not the built-in one
    tuning_file.save(dataclasses.replace(tuning, table=(choice,)), path)
    job = [*starts.ROUNDELAYRUN, "--mpi", "-np", "2", "--tuning", str(path), "--log-level", "INFO"]
    status, output = starts.run([*job, sys.executable, WORK], **variables)
    assert status == 0, output
    assert output.count("broadcast of 400 bytes: algorithm pipelined_tree") == 1, output


@pytest.mark.parametrize(
    ("flag", "has_gpu", "why"),
    [
        ("--mpi", False, "ROUNDELAY_GPU_FABRIC=mpi, but rank 0 can use no GPU; unset it"),
        ("--gloo", True, "ROUNDELAY_GPU_FABRIC=mpi, but rank 0: the job has no MPI"),
    ],
)
def test_what_cannot_be_measured_is_one_error(
    flag: str, has_gpu: bool, why: str, tmp_path: Path, variables: dict[str, str]
) -> None:
    if not has_gpu:
        del variables["PYTHONPATH"]
    path = tmp_path / "tuning.json"
    status, output = starts.run([*TUNE, flag, "--output", str(path)], **variables)
    assert status != 0
    assert re.search(f"roundelay tune: error: .*{re.escape(why)}", output), output
    assert not path.exists()
