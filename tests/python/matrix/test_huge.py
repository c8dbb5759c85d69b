"""More than 2^31 elements, for real: one int8 tensor, summed in place by two ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, mpirun, run_check

pytestmark = pytest.mark.slow

ELEMENTS = (1 << 31) + 3
NEEDED_GB = 14  # two tensors, what moves them, and what the machine needs beside


def available_gb() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) / 1e6


@pytest.mark.skipif(mpirun() is None, reason="no mpirun")
def test_more_elements_than_an_int32_counts(check: Check) -> None:
    if available_gb() < NEEDED_GB:
        pytest.skip(f"needs {NEEDED_GB} GB of free memory, there are {available_gb():.0f} GB")
    run_check(check, 2, fresh=True)


def check_sum_in_place() -> None:
    tensor = torch.full((ELEMENTS,), hvd.rank() + 1, dtype=torch.int8)
    marks = torch.tensor([0, 1, (1 << 30) + 7, (1 << 31) - 1, 1 << 31, ELEMENTS - 1])
    tensor[marks] = torch.arange(10, 16, dtype=torch.int8) + hvd.rank()
    hvd.allreduce_(tensor, op=hvd.Sum, name="huge")
    assert tensor[marks].tolist() == [21, 23, 25, 27, 29, 31]
    tensor[marks] = 3
    for begin in range(0, ELEMENTS, 1 << 28):
        low, high = tensor[begin : begin + (1 << 28)].aminmax()
        assert low == high == 3, f"wrong in the 2^28 elements from {begin}"
