"""What holds on the CPU holds on a GPU: the same checks, with a fake GPU as the default device."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranks import run_checks

PARALLEL = Path(__file__).parents[1] / "parallel"
FILES = {  # by job, as a start costs seconds
    "operations": ["allgather", "alltoall", "grouped", "join", "reducescatter", "sparse", "torch_operations"],
    "training": [
        "sync_batch_norm",
        "torch_functions",
        "torch_functions_objects",
        "torch_optimizer",
        "torch_optimizer_kinds",
    ],
}


@pytest.mark.parametrize("job", FILES)
def test_on_a_gpu(job: str) -> None:
    files = [str(PARALLEL / f"test_{name}.py") for name in FILES[job]]
    run_checks(files, 2, limit_s=150, env={"RANKS_DEVICE": "fakegpu"})
