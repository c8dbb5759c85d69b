"""What holds on the CPU holds on a GPU: the same checks, with a fake GPU as the default device."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranks import Check, run_check

PARALLEL, PARITY = (Path(__file__).parents[1] / folder for folder in ("parallel", "parity"))
ON_GPU = {"RANKS_DEVICE": "fakegpu"}
OPERATIONS = ("allgather", "alltoall", "grouped", "join", "reducescatter", "sparse", "torch_operations")
TRAINING = (
    "master_weights",
    "sync_batch_norm",
    "torch_functions",
    "torch_functions_objects",
    "torch_optimizer",
    "torch_optimizer_kinds",
)
STRATEGIES = ("strategies", "strategy_state", "csc")
NUMBERS = ("allreduce", "gathering", "reducescatter", "optimizer")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("np", [2])
@pytest.mark.checks_of(*(PARALLEL / f"test_{name}.py" for name in OPERATIONS))
def test_operations_on_a_gpu(np: int, check: Check) -> None:
    run_check(check, np, env=ON_GPU, fresh=True)


@pytest.mark.parametrize("np", [2])
@pytest.mark.checks_of(*(PARALLEL / f"test_{name}.py" for name in TRAINING))
def test_training_on_a_gpu(np: int, check: Check) -> None:
    run_check(check, np, env=ON_GPU, fresh=True)


@pytest.mark.checks_of(*(PARALLEL / f"test_{name}.py" for name in STRATEGIES))
def test_strategies_on_a_gpu(check: Check) -> None:
    run_check(check, 2, env={**ON_GPU, "ROUNDELAY_THETA": "64"}, fresh=True)


@pytest.mark.checks_of(*(PARITY / f"{name}.py" for name in NUMBERS))
def test_horovods_numbers_on_a_gpu(check: Check) -> None:
    run_check(check, 3, env=ON_GPU, fresh=True)
