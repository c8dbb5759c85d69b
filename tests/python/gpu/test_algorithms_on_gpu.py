"""An algorithm without ranks runs on GPUs by the same file: states, shards and totals lie there."""

from __future__ import annotations

import pytest
import torch

import gpu_device
from ranks import Check, run_check
from roundelay.algorithms import Algorithm, run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("np", "seed"), [(3, 2)])
def test_algorithms_on_gpu(np: int, seed: int, check: Check) -> None:
    run_check(check, np, env={"RANKS_DEVICE": gpu_device.NAME, "FAKE_GPU_SEED": str(seed)}, fresh=True)


def check_the_same_file_runs_on_a_gpu() -> None:
    rows = torch.arange(600.0, device="cpu").reshape(100, 6)

    def evaluate(state: torch.Tensor, shard: torch.Tensor) -> dict[str, torch.Tensor | int]:
        assert state.device.type == shard.device.type == gpu_device.NAME
        return {"sum": shard.sum(0) + state, "rows": len(shard)}

    def update(state: torch.Tensor, total: dict[str, torch.Tensor]) -> torch.Tensor:
        assert total["rows"].device.type == gpu_device.NAME
        return state + total["sum"] - total["rows"]

    algorithm = Algorithm(torch.zeros(6, device="cpu"), evaluate, update)
    state = run(algorithm, rows, 2, shards=7, device=gpu_device.NAME).state
    assert state.device.type == gpu_device.NAME
    once = rows.sum(0) - 100
    assert torch.equal(state.cpu(), once + rows.sum(0) + 7 * once - 100)
