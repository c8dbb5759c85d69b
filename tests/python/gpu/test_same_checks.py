"""What holds on the CPU holds on a GPU: the same checks, with a fake GPU as the default device."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranks import run_checks

TESTS = Path(__file__).parents[1]
FILES = {  # by job, as a start costs seconds
    "operations": ["allgather", "alltoall", "grouped", "join", "reducescatter", "sparse", "torch_operations"],
    "training": [
        "master_weights",
        "sync_batch_norm",
        "torch_functions",
        "torch_functions_objects",
        "torch_optimizer",
        "torch_optimizer_kinds",
    ],
}
pytestmark = pytest.mark.slow

NUMBERS = ["allreduce", "gathering", "reducescatter", "optimizer"]


@pytest.mark.parametrize("job", sorted(FILES))
def test_on_a_gpu(job: str) -> None:
    files = [str(TESTS / "parallel" / f"test_{name}.py") for name in FILES[job]]
    run_checks(files, 2, env={"RANKS_DEVICE": "fakegpu"}, fresh=True)


@pytest.mark.parametrize("name", ["strategies", "strategy_state", "csc"])  # each takes long beside other work
def test_strategies_on_a_gpu(name: str) -> None:
    env = {"RANKS_DEVICE": "fakegpu", "ROUNDELAY_THETA": "64"}
    run_checks([str(TESTS / "parallel" / f"test_{name}.py")], 2, env=env, fresh=True)


@pytest.mark.timeout(330)
def test_horovods_numbers_on_a_gpu() -> None:
    files = [str(TESTS / "parity" / f"{name}.py") for name in NUMBERS]
    run_checks(files, 3, limit_s=300, env={"RANKS_DEVICE": "fakegpu"}, fresh=True)
