"""With ROUNDELAY_DETERMINISTIC=1 nothing follows from measured times, and over a ring nothing is fused."""

from __future__ import annotations

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, run_check
from roundelay.torch._internal.tuning import calibration
from small_gradients import make_parameters, use_pool, wrapped_sgd

RING = {"ROUNDELAY_FABRIC": "mpi", "ROUNDELAY_ALGORITHM": "ring", "ROUNDELAY_DETERMINISTIC": "1"}


@pytest.mark.parametrize("np", [3])
def test_deterministic_ring(np: int, check: Check) -> None:
    run_check(check, np, env=RING)


@pytest.mark.checks_of(only=("sizes_of_buckets_are_not_measured",))
@pytest.mark.parametrize("np", [2, 4])
def test_deterministic_buckets(np: int, check: Check) -> None:
    run_check(check, np, env={"ROUNDELAY_DETERMINISTIC": "1"})


def check_grouped_sums_have_the_bits_of_single_ones() -> None:
    seed = torch.Generator().manual_seed(hvd.rank())
    tensors = [torch.randn(n, generator=seed) * 10.0 ** torch.randint(-4, 5, (n,)) for n in (5, 70, 11, 1000)]
    alone = [hvd.allreduce(one, op=hvd.Sum, name=f"alone{n}") for n, one in enumerate(tensors)]
    before = hvd.stats()
    handles = [hvd.allreduce_async(one, op=hvd.Sum, name=f"many{n}") for n, one in enumerate(tensors)]
    many = [hvd.synchronize(handle) for handle in handles]
    after = hvd.stats()
    assert after["operations"] - before["operations"] == len(tensors)
    for one, other in zip(alone, many, strict=True):
        assert torch.equal(one, other)


def check_sizes_of_buckets_are_not_measured() -> None:
    """csc and topk send other parts of other buckets, and quantised rounds other blocks."""
    calibration.forget()
    optimizer = wrapped_sgd(make_parameters(24, 1 << 14))
    use_pool(optimizer)
    assert calibration.known(hvd.global_process_set) is None
