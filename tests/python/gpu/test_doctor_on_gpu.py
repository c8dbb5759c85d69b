"""The doctor's ranks try each fabric between GPUs, and a build for other GPUs is refused at init()."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import gpu_device
import roundelay.torch as hvd
from ranks import PATHS, Check, run_check
from roundelay.doctor.two_ranks import gpu_fabrics

pytestmark = pytest.mark.slow

BEGIN = """
import gpu_device, torch
gpu_device.use()
import roundelay.torch as hvd
try:
    hvd.init()
    print(hvd.allreduce(torch.ones(3)).tolist())
except (RuntimeError, ValueError) as error:
    print(error)
"""


@pytest.mark.parametrize("mpi", [False, True])
def test_doctor_on_gpus(mpi: bool, check: Check) -> None:
    run_check(check, 2, env={"RANKS_DEVICE": gpu_device.NAME}, fresh=True, mpi=mpi)


def check_each_fabric_works_or_says_why() -> None:
    bootstrap = "mpi" if "OMPI_COMM_WORLD_RANK" in os.environ else "store"
    hvd.shutdown()
    found = gpu_fabrics(bootstrap)
    hvd.init()
    if bootstrap == "mpi":
        assert found == {"GPU fabric mpi": ""}
    else:
        assert found["GPU fabric staged"] == ""
        assert "ROUNDELAY_GPU_FABRIC=nccl, but rank 0 has no NCCL" in found["GPU fabric nccl"]
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [hvd.size()] * 3


@pytest.mark.parametrize(
    ("fitting", "said", "warned"),
    [
        (0, "fake GPU 0 is not what the kernels are compiled for", ""),
        (1, "[1.0, 1.0, 1.0]", "fake GPU 1 is not what the kernels are compiled for"),
        (2, "[1.0, 1.0, 1.0]", ""),
    ],
)
def test_gpus_that_the_build_is_not_for(fitting: int, said: str, warned: str) -> None:
    variables = {"FAKE_GPU_DEVICES": "2", "FAKE_GPU_FITTING": str(fitting)}
    path = os.pathsep.join([*map(str, PATHS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", BEGIN],
        env={**os.environ, "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert said in done.stdout, done.stderr
    assert warned in done.stderr
    assert ("compiled for" in done.stderr) == bool(warned)
