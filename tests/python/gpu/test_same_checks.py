"""What holds on the CPU holds on a GPU: the same checks, with a fake GPU as the default device."""

from __future__ import annotations

from pathlib import Path

import pytest

from parallel.test_auto import JOINED, REPORT, SEARCH
from ranks import Check, run_check, two_by_two

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
    "torch_optimizer_loops",
)
# torch's DistributedSampler shuffles with a generator of the CPU, which a default device does not take.
LOADERS = tuple(
    f"torch_optimizer_loops.a_{name}" for name in ("manual_loop_with_loader_workers", "trainer_loop")
)
STRATEGIES = ("strategies", "strategy_state", "csc", "csc_scaler")
# These want other settings, or a folder.
OF_AUTO_ALONE = tuple(f"auto.{name}" for name in (*REPORT, *JOINED, *SEARCH))
# Operations on GPUs of several process sets take tickets, and no schedule has these.
OF_SCHEDULES = ("daso_use.gradients_in_the_node_keep_their_schedule",)
AVERAGES = ("local_sgd", "daso", "daso_use")
NUMBERS = ("allreduce", "gathering", "reducescatter", "optimizer")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("np", [2])
@pytest.mark.checks_of(*(PARALLEL / f"test_{name}.py" for name in OPERATIONS))
def test_operations_on_a_gpu(np: int, check: Check) -> None:
    run_check(check, np, env=ON_GPU, fresh=True)


@pytest.mark.parametrize("np", [2])
@pytest.mark.checks_of(*(PARALLEL / f"test_{name}.py" for name in TRAINING), but=LOADERS)
def test_training_on_a_gpu(np: int, check: Check) -> None:
    run_check(check, np, env=ON_GPU, fresh=True)


@pytest.mark.checks_of(*(PARALLEL / f"test_{name}.py" for name in STRATEGIES))
def test_strategies_on_a_gpu(check: Check) -> None:
    run_check(check, 2, env={**ON_GPU, "ROUNDELAY_THETA": "64"}, fresh=True)


@pytest.mark.checks_of(PARALLEL / "test_power_sgd.py")
@pytest.mark.parametrize(("np", "seed"), [(2, 1), pytest.param(3, 2, marks=pytest.mark.nightly)])
def test_power_sgd_on_a_gpu(np: int, seed: int, check: Check) -> None:
    run_check(check, np, env={**ON_GPU, "ROUNDELAY_THETA": "2048", "FAKE_GPU_SEED": str(seed)}, fresh=True)


@pytest.mark.checks_of(*(PARALLEL / f"test_{name}.py" for name in AVERAGES), but=OF_SCHEDULES)
def test_averages_of_parameters_on_gpus(check: Check) -> None:
    run_check(check, 4, env=ON_GPU, fresh=True)


@pytest.mark.checks_of(PARALLEL / "test_local_sgd.py")
def test_local_sgd_on_gpus_of_two_nodes(check: Check) -> None:
    run_check(check, 4, env=ON_GPU, each=two_by_two(), mpi=False)


@pytest.mark.checks_of(PARALLEL / "test_auto.py", but=OF_AUTO_ALONE)
def test_auto_on_a_gpu(check: Check) -> None:
    run_check(check, 2, env={**ON_GPU, "ROUNDELAY_THETA": "64"}, fresh=True)


@pytest.mark.checks_of(*(PARITY / f"{name}.py" for name in NUMBERS))
def test_horovods_numbers_on_a_gpu(check: Check) -> None:
    run_check(check, 3, env=ON_GPU, fresh=True)
