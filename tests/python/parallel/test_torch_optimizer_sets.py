"""DistributedOptimizer on process sets: models split over ranks. All sums are exact."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, run_check
from small_gradients import (
    ALONE,
    POOLED,
    add_gradients,
    gradient_of,
    make_parameters,
    sum_of_ranks,
    wrapped_sgd,
)
from some_ranks import all_but_the_last, process_set_of


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_sets(np: int, check: Check) -> None:
    run_check(check, np)


@pytest.mark.parametrize("np", [2, 4])
def test_sets_with_gradients_in_a_pool(np: int, check: Check) -> None:
    run_check(check, np, env={POOLED: "1"})


@pytest.mark.slow
@pytest.mark.parametrize("np", [2, 4])
def test_sets_without_a_pool(np: int, check: Check) -> None:
    run_check(check, np, env=ALONE)


def _sum_of(ranks: list[int]) -> float:
    return sum(rank + 1.0 for rank in ranks)


def check_a_rank_outside_has_a_plain_optimizer() -> None:
    with process_set_of(all_but_the_last()) as first:
        parameters = make_parameters(2)
        optimizer: Any = wrapped_sgd(parameters, process_set=first)
        for _ in range(2):
            optimizer.zero_grad()
            add_gradients(*((parameter, hvd.rank() + 1.0) for parameter in parameters))
            expected = _sum_of(first.ranks) if first.included() else hvd.rank() + 1.0
            assert gradient_of(parameters[1]) == [expected] * 3
            optimizer.synchronize()  # the same script on all ranks
            with optimizer.skip_synchronize():
                optimizer.step()
        assert parameters[0].tolist() == [-2 * expected] * 3


def check_a_model_split_over_two_sets() -> None:
    """A trunk on all ranks, a head of each set's own; both heads have the same names."""
    with (
        process_set_of(list(range(0, hvd.size(), 2))) as even,
        process_set_of(list(range(1, hvd.size(), 2)) or [0]) as odd,
    ):
        mine = even if hvd.rank() % 2 == 0 else odd
        for op, divisor in ((hvd.Sum, 1.0), (hvd.Average, float(mine.size()))):
            _train_a_split_model(mine, op, divisor)


def _train_a_split_model(mine: hvd.ProcessSet, op: int, divisor: float) -> None:
    trunk, seldom, head = make_parameters(3)
    heads = hvd.DistributedOptimizer(torch.optim.SGD([head], lr=1.0), op=op, process_set=mine)
    trunks = wrapped_sgd([trunk, seldom])
    for step in range(3):
        heads.zero_grad()
        trunks.zero_grad()
        uses = [(trunk, hvd.rank() + 1.0), (head, (hvd.rank() + 1.0) * divisor)]
        if hvd.rank() == 0 and step:
            uses.append((seldom, 3.0))
        add_gradients(*(uses if hvd.rank() % 2 else reversed(uses)))
        assert gradient_of(trunk) == [sum_of_ranks()] * 3
        assert gradient_of(head) == [_sum_of(mine.ranks)] * 3
        assert seldom.grad is None or gradient_of(seldom) == [3.0] * 3
        heads.step()
        trunks.step()


def check_groups_and_sparse_gradients_on_a_set() -> None:
    with process_set_of(list(range(hvd.size() // 2, hvd.size()))) as last:
        if last.included() and last.size() > 1:
            embedding = torch.nn.Embedding(hvd.size(), 1, sparse=True)
            parameters = make_parameters(2)
            optimizer = wrapped_sgd([*parameters, *embedding.parameters()], groups=1, process_set=last)
            (embedding(torch.tensor([hvd.rank()])).sum() + parameters[0].sum()).backward()
            assert embedding.weight.grad is not None
            rows = embedding.weight.grad.to_dense().flatten().tolist()
            assert rows == [float(rank in last.ranks) for rank in range(hvd.size())]
            assert gradient_of(parameters[0]) == [last.size()] * 3
            optimizer.step()


def check_adasum_on_a_set() -> None:
    with process_set_of(all_but_the_last()) as first:
        parameter = torch.nn.Parameter(torch.zeros(4))
        plain = torch.optim.SGD([parameter], lr=1.0)
        optimizer = hvd.DistributedOptimizer(plain, op=hvd.Adasum, process_set=first)
        parameter[hvd.rank()].backward()
        optimizer.step()
        if first.included():
            assert parameter.tolist() == [-float(rank in first.ranks) for rank in range(4)]
        else:
            assert parameter.tolist() == [-float(rank == hvd.rank()) for rank in range(4)]


def check_overflow_on_a_set() -> None:
    with process_set_of(all_but_the_last()) as first:
        (parameter,) = make_parameters(1)
        optimizer = wrapped_sgd([parameter], process_set=first)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for value in (1.0, float("inf") if hvd.rank() == 0 else 1.0, 1.0):
            optimizer.zero_grad()
            scaler.scale((parameter * value).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        assert parameter.tolist() == [-2.0 * first.size() if first.included() else -3.0] * 3
