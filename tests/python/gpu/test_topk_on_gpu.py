"""The strategy TopK on a GPU: selection, residual and sums lie there, and only messages leave it."""

from __future__ import annotations

import pytest
import torch

import gpu_device
import roundelay.torch as hvd
from exact_training import Training, until_buckets
from parallel.test_topk import (  # noqa: F401  on a GPU, too
    FINE,
    SIZES,
    check_a_state_of_another_place_in_the_node_is_refused,
    check_bytes_that_a_rank_gives_its_fabrics,
    check_clipping_sees_what_is_applied,
    check_density_1_is_dense_bit_for_bit,
    check_local_momentum_follows_the_formulas,
    check_so_many_are_sent_as_asked,
    check_what_is_sent_and_kept_is_what_came,
    levels_here,
)
from ranks import Check, one_and_more, run_check, two_by_two
from roundelay.torch._internal.nodes import Levels

pytestmark = pytest.mark.slow
ON_GPU = {"RANKS_DEVICE": gpu_device.NAME, "ROUNDELAY_THETA": "512"}


@pytest.mark.parametrize(("np", "seed"), [(2, 1), pytest.param(3, 2, marks=pytest.mark.nightly)])
def test_topk_on_gpu(np: int, seed: int, check: Check) -> None:
    run_check(check, np, env={**ON_GPU, "FAKE_GPU_SEED": str(seed)}, fresh=True)


def test_topk_on_gpus_of_two_nodes(check: Check) -> None:
    run_check(check, 4, env=ON_GPU, each=two_by_two(), mpi=False)


def test_topk_on_gpus_of_uneven_nodes(check: Check) -> None:
    run_check(check, 4, env=ON_GPU, each=one_and_more(), mpi=False)


def check_the_levels_are_those_of_the_gpus() -> None:
    """Those of the CPU's, with and without NCCL."""
    assert levels_here() == Levels.of(hvd.global_process_set)


def check_the_gpu_has_the_cpus_weights() -> None:
    trained = []
    for device in ("cpu", gpu_device.NAME):
        with torch.device(device):
            training = until_buckets(Training(f"topk:density=0.05,{FINE},wire=bf16", SIZES))
            for _ in range(10):
                training.step()
        trained.append([one.detach().cpu() for one in training.parameters])
    assert all(map(torch.equal, *trained))
    assert any(one.any() for one in trained[0])
