"""The strategy Quantised on ranks of several nodes: what it computes, sends and keeps."""

from __future__ import annotations

import pytest
import torch

import roundelay.torch as hvd
from exact_training import Training, until_buckets
from ranks import Check, one_and_more, run_check, two_by_two
from roundelay.torch._internal.nodes import Levels

THETA = {"ROUNDELAY_THETA": "4096"}  # several buckets
SIZES = (700, (20, 30), 5, (16, 8), 640)
EACH_A_NODE = "ROUNDELAY_NODE_ID=$RANK LOCAL_RANK=0"


@pytest.mark.parametrize("np", [2, pytest.param(3, marks=pytest.mark.nightly)])
def test_quantised_on_nodes_of_one_rank(np: int, check: Check) -> None:
    run_check(check, np, env=THETA, each=EACH_A_NODE, mpi=False)


@pytest.mark.slow
def test_quantised_on_nodes_of_two_ranks(check: Check) -> None:
    run_check(check, 4, env=THETA, each=two_by_two(), mpi=False)


@pytest.mark.nightly
def test_quantised_on_uneven_nodes(check: Check) -> None:
    run_check(check, 4, env=THETA, each=one_and_more(), mpi=False)


def _used(training: Training) -> set[str]:
    return {technique for _, rows in training.techniques.table.traffic() for technique, *_ in rows}


def check_what_came_is_sent_or_kept() -> None:
    for op in (hvd.Sum, hvd.Average):
        training = until_buckets(Training("quantised:bits=8", SIZES, op=op))
        for number in range(40):
            training.flush() if number % 15 == 7 else training.step()
            training.check_ranks_agree()
        assert "quantised:bits=8" in _used(training)
        assert training.techniques.table.keeps_something()
        training.flush()
        assert not training.techniques.table.keeps_something()
        for parameter, given in zip(training.parameters, training.given, strict=True):
            torch.testing.assert_close(-parameter.detach(), hvd.allreduce(given, op=op), rtol=0, atol=1e-2)


def check_each_step_is_near_the_dense_one() -> None:
    training = until_buckets(Training("quantised:bits=8", SIZES, op=hvd.Average))
    training.flush()
    for _ in range(5):
        before = [one.detach().clone() for one in training.parameters]
        given = [one.clone() for one in training.given]
        training.step()
        for parameter, old, earlier, now in zip(
            training.parameters, before, given, training.given, strict=True
        ):
            mean = hvd.allreduce(now - earlier, op=hvd.Average)
            assert torch.allclose(old - parameter.detach(), mean, rtol=0, atol=4 * 8 / 127)


def check_a_quarter_of_the_bytes_goes_between_nodes() -> None:
    if Levels.of(hvd.global_process_set).nodes < hvd.size():  # in a node all is dense
        return
    training = until_buckets(Training("quantised:bits=8", SIZES))
    before = hvd.stats()["technique_called_bytes"]
    training.step()
    called = hvd.stats()["technique_called_bytes"] - before
    elements = sum(bucket.core.bytes for bucket in training.techniques.table.buckets) // 4
    others = (hvd.size() - 1) / hvd.size()  # the exchange, and this rank's part of the gather
    assert elements * (others + 1 / hvd.size()) <= called <= 1.1 * elements + 1024


def check_an_overflow_reaches_the_scaler() -> None:
    training = until_buckets(Training("quantised:bits=8", SIZES))
    training.check_an_overflow_is_skipped()
    assert all(one.isfinite().all() for one in training.parameters)
    training.check_ranks_agree()


def check_other_types() -> None:
    for dtype in (torch.float64, torch.bfloat16):
        parameter = torch.nn.Parameter(torch.zeros(700, dtype=dtype))
        plain = torch.optim.SGD([parameter], lr=1.0)
        optimizer = hvd.DistributedOptimizer(plain, strategy="quantised:bits=8")
        before = hvd.stats()["technique_called_bytes"]
        for _ in range(6):
            optimizer.zero_grad()
            (parameter * (hvd.rank() + 1)).sum().backward()
            optimizer.step()
        assert (hvd.stats()["technique_called_bytes"] > before) == (dtype == torch.bfloat16)
        expected = -6 * (hvd.size() + 1) / 2
        assert torch.allclose(
            parameter.double(), torch.full((700,), expected, dtype=torch.float64), rtol=0.02
        )
        del optimizer, plain, parameter
