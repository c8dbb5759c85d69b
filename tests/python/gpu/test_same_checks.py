"""What holds on the CPU holds on a GPU: the same checks, with a fake GPU as the default device."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranks import run_checks

PARALLEL = Path(__file__).parents[1] / "parallel"
FILES = [
    "test_allgather.py",
    "test_alltoall.py",
    "test_grouped.py",
    "test_join.py",
    "test_reducescatter.py",
    "test_sync_batch_norm.py",
    "test_torch_functions.py",
    "test_torch_operations.py",
]


@pytest.mark.parametrize("file", FILES)
def test_on_a_gpu(file: str) -> None:
    run_checks(str(PARALLEL / file), 2, env={"RANKS_DEVICE": "fakegpu"})
