"""Uneven data: join_context around the loops of DistributedOptimizer. All sums are exact."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check
from roundelay.torch._internal.optimizer.join_context import join_context
from small_gradients import ALONE, POOLED, add_gradients, gradient_of, make_parameters, wrapped_sgd
from some_ranks import all_but_the_last, process_set_of


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_join(np: int, check: Check) -> None:
    run_check(check, np)


@pytest.mark.parametrize("np", [2, 4])
def test_join_with_gradients_in_a_pool(np: int, check: Check) -> None:
    run_check(check, np, env={POOLED: "1"})


@pytest.mark.slow
@pytest.mark.parametrize("np", [2, 4])
def test_join_without_a_pool(np: int, check: Check) -> None:
    run_check(check, np, env=ALONE)


def _joined(context: join_context) -> int | None:
    return context.last_rank


def _sum_of(ranks: list[int]) -> float:
    return sum(rank + 1.0 for rank in ranks)


def check_rank_r_has_r_plus_one_batches() -> None:
    for op, share in ((hvd.Sum, 1.0), (hvd.Average, 1.0 / hvd.size())):
        for groups in (None, 1):
            used, seldom = make_parameters(2)
            plain = torch.optim.SGD([used, seldom], lr=1.0)
            optimizer = hvd.DistributedOptimizer(plain, op=op, groups=groups)
            for _ in range(2):  # epochs
                with join_context(optimizer) as context:
                    for step in range(hvd.rank() + 1):
                        here = list(range(step, hvd.size()))
                        optimizer.zero_grad()
                        factor = (hvd.rank() + 1.0) * hvd.size()
                        if hvd.rank() == hvd.size() - 1:
                            add_gradients((used, factor), (seldom, factor))
                        else:
                            add_gradients((used, factor))
                        optimizer.step()
                        assert gradient_of(used) == [_sum_of(here) * hvd.size() * share] * 3
                        assert gradient_of(seldom) == [hvd.size() ** 2 * share] * 3
                    assert _joined(context) is None
                assert _joined(context) == hvd.size() - 1
                parameters = {"used": used.data, "seldom": seldom.data}
                hvd.broadcast_parameters(parameters, root_rank=hvd.size() - 1)
                lowest = hvd.allreduce(used.data, op=hvd.Min)
                assert torch.equal(lowest, used)


def check_accumulation_on_uneven_data() -> None:
    (parameter,) = make_parameters(1)
    optimizer: Any = wrapped_sgd([parameter], backward_passes_per_step=2)
    with join_context(optimizer):
        for step in range(hvd.size() - hvd.rank()):
            optimizer.zero_grad()
            add_gradients((parameter, 1.0))
            with optimizer.no_sync():
                add_gradients((parameter, 1.0))
            optimizer.step()
            assert gradient_of(parameter) == [2.0 * (hvd.size() - step)] * 3


@needs_ranks(2)
def check_sparse_gradients_on_uneven_data() -> None:
    embedding = torch.nn.Embedding(4, 1, sparse=True)
    optimizer = wrapped_sgd(list(embedding.parameters()))
    with join_context(optimizer) as context:
        for step in range(hvd.rank() + 1):
            optimizer.zero_grad()
            embedding(torch.tensor([hvd.rank()])).sum().backward()
            assert embedding.weight.grad is not None
            rows = embedding.weight.grad.to_dense().flatten().tolist()
            assert rows == [float(step <= row < hvd.size()) for row in range(4)]
            optimizer.step()
    assert context.last_rank == hvd.size() - 1


def check_two_optimizers_on_uneven_data() -> None:
    first, second = make_parameters(2)
    one, two = wrapped_sgd([first]), wrapped_sgd([second])
    with join_context(one, two):
        for step in range(hvd.rank() + 1):
            one.zero_grad()
            two.zero_grad()
            add_gradients((first, 1.0), (second, 2.0))
            one.step()
            two.step()
            assert gradient_of(second) == [2.0 * (hvd.size() - step)] * 3


def check_an_exception_does_not_join() -> None:
    (parameter,) = make_parameters(1)
    optimizer = wrapped_sgd([parameter])
    with pytest.raises(ZeroDivisionError), join_context(optimizer) as context:
        raise ZeroDivisionError
    assert context.last_rank is None
    add_gradients((parameter, 1.0))
    assert gradient_of(parameter) == [hvd.size()] * 3


def check_the_ranks_of_a_set_join() -> None:
    with process_set_of(all_but_the_last()) as first:
        (parameter,) = make_parameters(1)
        optimizer = wrapped_sgd([parameter], process_set=first)
        with join_context(optimizer) as context:
            for step in range(hvd.rank() + 1 if first.included() else 5):
                optimizer.zero_grad()
                add_gradients((parameter, 1.0))
                optimizer.step()
                assert gradient_of(parameter) == [first.size() - step if first.included() else 1.0] * 3
        assert context.last_rank == (first.size() - 1 if first.included() else None)
        if hvd.size() > 1:
            with pytest.raises(ValueError, match="one block for each set"):
                join_context(optimizer, wrapped_sgd(make_parameters(1)))


def check_optimizers_that_it_refuses() -> None:
    (parameter,) = make_parameters(1)
    with pytest.raises(ValueError, match="wrapped"):
        join_context(torch.optim.SGD([parameter], lr=1.0))
