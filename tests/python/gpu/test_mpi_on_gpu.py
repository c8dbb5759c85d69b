"""MPI moves a GPU's memory: the fake device's is the host's in disguise, so that this MPI takes it."""

from __future__ import annotations

import pytest
import torch

import gpu_device
import roundelay.torch as hvd
from ranks import Check, run_check

GPU = gpu_device.NAME
ENVIRONMENT = {"RANKS_DEVICE": GPU, "ROUNDELAY_GPU_FABRIC": "mpi", "HOROVOD_DYNAMIC_PROCESS_SETS": "1"}


@pytest.mark.slow
def test_mpi_moves_gpus_memory(check: Check) -> None:
    run_check(check, 3, env=ENVIRONMENT, fresh=True)


def check_sums_on_the_device_are_counted() -> None:
    for count in (1, 1000, 300_000):
        before = hvd.stats()
        values = torch.arange(count, dtype=torch.float32, device=GPU)
        result = hvd.allreduce(values, op=hvd.Sum, name=f"sum of {count}")
        assert torch.equal(result, values * hvd.size())
        after = hvd.stats()
        # Rank 1 gives its vector to rank 0, and adds nothing. Rank 0 adds that vector, and rank 2's.
        shares = {0: 2, 1: 0, 2: 1} if count * 4 <= 256 << 10 else {0: 1.5, 1: 0, 2: 0.5}
        assert after["gpu_sum_bytes"] - before["gpu_sum_bytes"] == shares[hvd.rank()] * count * 4
        assert (after["gpu_sums"] > before["gpu_sums"]) == (hvd.rank() != 1)


def check_a_process_set_has_a_communicator_of_its_own() -> None:
    ends = hvd.add_process_set([0, hvd.size() - 1])
    if ends.included():
        result = hvd.allreduce(torch.ones(77, device=GPU), op=hvd.Sum, name="ends", process_set=ends)
        assert result.unique().tolist() == [2.0]
    result = hvd.allreduce(torch.ones(77, device=GPU), op=hvd.Sum, name="all")
    assert result.unique().tolist() == [float(hvd.size())]
    assert hvd.remove_process_set(ends)


def check_after_warm_up_no_question_reaches_the_driver() -> None:
    values = torch.zeros(1000, device=GPU)
    misses = []
    for _ in range(20):
        hvd.allreduce_(values, op=hvd.Sum, name="again")
        misses.append(hvd.stats()["pointer_misses"])
    assert misses[-1] == misses[2]
    assert hvd.stats()["pointer_hits"] > 10


def check_adasum_goes_over_the_host() -> None:
    result = hvd.allreduce(torch.ones(100, device=GPU), op=hvd.Adasum, name="adasum")
    assert torch.allclose(result, torch.ones(100, device=GPU))
