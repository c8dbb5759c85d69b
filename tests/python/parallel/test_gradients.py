"""Exact gradients: each rank's loss weighs its outputs with weights of its own.

The analytic gradient is that of the sum of all ranks' losses. What differs by default is Horovod's:
parity/test_numbers.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import roundelay.torch as hvd
from random_values import normal
from ranks import Check, needs_ranks, run_check


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_gradients(np: int, check: Check) -> None:
    run_check(check, np, env={"ROUNDELAY_EXACT_GRADIENTS": "1"})


def weights(rank: int, *shape: int) -> torch.Tensor:
    """Small integers, different on each rank: sums are exact."""
    count = int(torch.tensor(shape).prod())
    return (torch.arange(float(count)) % 5 + 3 * rank + 1).reshape(shape)


def gradient_of(x: torch.Tensor, operation: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Of the loss of this rank's output under this rank's weights, named or not."""
    x = x.detach().requires_grad_()
    output = operation(x)
    (output * weights(hvd.rank(), *output.shape)).sum().backward()
    assert x.grad is not None
    return x.grad


def expect(gradient: torch.Tensor, analytic: torch.Tensor) -> None:
    torch.testing.assert_close(gradient, analytic, rtol=1e-6, atol=0)


def check_allreduce() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    total = sum((weights(rank, 2, 3) for rank in range(hvd.size())), torch.zeros(2, 3))
    for name in (None, "forward"):
        expect(gradient_of(x, lambda t: hvd.allreduce(t, name=name, op=hvd.Sum)), total)  # noqa: B023
        expect(gradient_of(x, lambda t: hvd.allreduce(t, name=name)), total / hvd.size())  # noqa: B023
    scaled = gradient_of(x, lambda t: hvd.allreduce(t, op=hvd.Sum, prescale_factor=0.5, postscale_factor=8.0))
    expect(scaled, total * 4)
    expect(gradient_of(x, lambda t: hvd.allreduce(t, op=hvd.Sum, compression=hvd.Compression.fp16)), total)
    for op in (hvd.Min, hvd.Max, hvd.Product):
        with pytest.raises(RuntimeError, match="has no gradient"):
            gradient_of(x, lambda t: hvd.allreduce(t, op=op))  # noqa: B023


def check_grouped_allreduce() -> None:
    for name in (None, "group"):
        x = torch.ones(2, 3, requires_grad=True)
        y = torch.ones(4, requires_grad=True)
        a, integers, b = hvd.grouped_allreduce([x, torch.ones(2).long(), y], name=name, op=hvd.Sum)
        assert not integers.requires_grad
        loss = (a * weights(hvd.rank(), 2, 3)).sum() + (b * weights(hvd.rank(), 4)).sum()
        loss.backward()
        assert x.grad is not None
        assert y.grad is not None
        expect(x.grad, sum((weights(rank, 2, 3) for rank in range(hvd.size())), torch.zeros(2, 3)))
        expect(y.grad, sum((weights(rank, 4) for rank in range(hvd.size())), torch.zeros(4)))


def check_an_output_that_the_loss_does_not_use() -> None:
    x, y = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    a, _ = hvd.grouped_allreduce([x, y])
    a.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1, 1]
    assert y.grad is None or y.grad.tolist() == [0, 0, 0]


def check_allgather_with_rows_by_rank() -> None:
    begin = sum(range(1, hvd.rank() + 1))
    everything = sum(range(1, hvd.size() + 1))
    mine = hvd.rank() + 1
    total = sum((weights(rank, everything, 2) for rank in range(hvd.size())), torch.zeros(everything, 2))
    for name in (None, "rows"):
        gradient = gradient_of(torch.ones(mine, 2), lambda t: hvd.allgather(t, name=name))  # noqa: B023
        expect(gradient, total[begin : begin + mine])


def check_grouped_allgather() -> None:
    x, y = torch.ones(1, 2, requires_grad=True), torch.ones(hvd.rank(), requires_grad=True)
    a, _, b = hvd.grouped_allgather([x, torch.ones(3).int(), y], name="gathered")
    (a.sum() * (hvd.rank() + 1) + b.sum() * 2).backward()
    assert x.grad is not None
    assert y.grad is not None
    assert x.grad.tolist() == [[sum(range(1, hvd.size() + 1))] * 2]
    assert y.grad.tolist() == [2 * hvd.size()] * hvd.rank()


def check_allgather_where_a_lower_rank_has_joined() -> None:
    """What rank 0 does not gather has no rows before the others'."""
    if hvd.rank() > 0:
        here = range(1, hvd.size())
        begin, everything = sum(range(2, hvd.rank() + 1)), sum(rank + 1 for rank in here)
        total = sum((weights(rank, everything) for rank in here), torch.zeros(everything))
        mine = slice(begin, begin + hvd.rank() + 1)
        expect(gradient_of(torch.ones(hvd.rank() + 1), hvd.allgather), total[mine])
        grouped = gradient_of(torch.ones(hvd.rank() + 1), lambda t: hvd.grouped_allgather([t, t])[1])
        expect(grouped, total[mine])
    hvd.join()


@needs_ranks(2)
def check_a_rank_that_joins_between_allgather_and_its_backward() -> None:
    """Where its rows lay is not known any more: an error, not another rank's gradient."""
    x = torch.ones(2, requires_grad=True)
    y = hvd.allgather(x, name="left")
    if hvd.rank() > 0:
        with pytest.raises(hvd.HorovodInternalError, match=r"'left.gradient'.*join"):
            y.sum().backward()
        assert x.grad is None
    hvd.join()


def check_broadcast() -> None:
    root = hvd.size() - 1
    total = sum((weights(rank, 3) for rank in range(hvd.size())), torch.zeros(3))
    for name in (None, "cast"):
        gradient = gradient_of(torch.ones(3), lambda t: hvd.broadcast(t, root, name=name))  # noqa: B023
        expect(gradient, total if hvd.rank() == root else torch.zeros(3))


def check_alltoall() -> None:
    """From rank r to rank t go 1 + (r + t) % 2 rows; they lie, at t, behind those of ranks below r."""

    def rows(sender: int, receiver: int) -> int:
        return 1 + (sender + receiver) % 2

    ranks = range(hvd.size())
    splits = [rows(hvd.rank(), to) for to in ranks]
    analytic = []
    for to in ranks:
        before = sum(rows(sender, to) for sender in range(hvd.rank()))
        whole = weights(to, sum(rows(sender, to) for sender in ranks), 2)
        analytic.append(whole[before : before + rows(hvd.rank(), to)])
    for name in (None, "exchange"):
        gradient = gradient_of(torch.ones(sum(splits), 2), lambda t: hvd.alltoall(t, splits, name=name)[0])  # noqa: B023
        expect(gradient, torch.cat(analytic))
    gradient = gradient_of(torch.ones(hvd.size()), hvd.alltoall)
    expect(gradient, torch.stack([weights(to, hvd.size())[hvd.rank()] for to in ranks]))


def check_reducescatter() -> None:
    rows = 2 * hvd.size() + 1
    shares = [rows // hvd.size() + (rank < rows % hvd.size()) for rank in range(hvd.size())]
    whole = torch.cat([weights(rank, share, 2) for rank, share in enumerate(shares)])
    x = torch.ones(rows, 2)
    for name in (None, "scatter"):
        expect(gradient_of(x, lambda t: hvd.reducescatter(t, name, op=hvd.Sum)), whole)  # noqa: B023
        expect(gradient_of(x, lambda t: hvd.reducescatter(t, name)), whole / hvd.size())  # noqa: B023
    scaled = gradient_of(
        x, lambda t: hvd.reducescatter(t, op=hvd.Sum, prescale_factor=0.5, postscale_factor=8.0)
    )
    expect(scaled, whole * 4)
    expect(gradient_of(x, lambda t: hvd.grouped_reducescatter([t], op=hvd.Sum)[0]), whole)


def check_a_contrastive_loss_is_that_of_one_process() -> None:
    """Of the mean of all ranks' losses, where each loss mixes this rank's rows with the gathered ones."""
    rows = 3
    batches = [normal(torch.Generator().manual_seed(rank), rows, 4).double() for rank in range(hvd.size())]

    def loss(own: torch.Tensor, everyones: torch.Tensor, rank: int) -> torch.Tensor:
        labels = torch.arange(rows) + rows * rank
        return torch.nn.functional.cross_entropy(own @ everyones.T, labels)

    whole = torch.eye(4, dtype=torch.float64, requires_grad=True)
    features = [batch @ whole for batch in batches]
    losses = [loss(own, torch.cat(features), rank) for rank, own in enumerate(features)]
    torch.stack(losses).mean().backward()  # type: ignore[no-untyped-call]
    weight = torch.nn.Parameter(torch.eye(4, dtype=torch.float64))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1))
    own = batches[hvd.rank()] @ weight
    loss(own, hvd.allgather(own), hvd.rank()).backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(weight.grad, whole.grad)
    optimizer.step()


def check_numbers_agree_with_finite_differences() -> None:
    """Not the formulas again: one element of one rank is moved, and the sum of all losses is watched."""
    operations: list[Callable[[torch.Tensor], torch.Tensor]] = [
        hvd.allreduce,
        hvd.allgather,
        lambda t: hvd.broadcast(t, 0),
        hvd.alltoall,
        hvd.reducescatter,
        lambda t: hvd.reducescatter(t, op=hvd.Sum),
    ]
    for operation in operations:
        x = torch.arange(2.0 * hvd.size(), dtype=torch.float64) + hvd.rank()
        gradient = gradient_of(x, operation)
        for mover in range(hvd.size()):
            moved = x.clone()
            moved[1] += 1.0 if hvd.rank() == mover else 0.0
            change = operation(moved) - operation(x)
            difference = (change * weights(hvd.rank(), *change.shape)).sum()
            total = hvd.allreduce(difference, op=hvd.Sum)
            if hvd.rank() == mover:
                torch.testing.assert_close(gradient[1], total, rtol=1e-9, atol=1e-9)


def check_second_derivatives() -> None:
    for operation in (
        lambda t: hvd.allreduce(t, op=hvd.Sum),
        hvd.allgather,
        lambda t: hvd.broadcast(t, 0),
        hvd.alltoall,
        lambda t: hvd.reducescatter(t, op=hvd.Sum),
    ):
        x = torch.arange(1.0, 2.0 * hvd.size() + 1).requires_grad_()
        (first,) = torch.autograd.grad((operation(x) ** 3).sum(), x, create_graph=True)  # type: ignore[no-untyped-call]
        (second,) = torch.autograd.grad(first.sum(), x)
        assert second.shape == x.shape
        assert bool(torch.isfinite(second).all())
    x = torch.arange(1.0, 4.0).requires_grad_()
    (first,) = torch.autograd.grad((hvd.allreduce(x, op=hvd.Sum) ** 2).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    # d/dx_r of sum_s sum_t 2 * sum(x): 2 * size for each of size ranks that depend on it
    assert second.tolist() == [2.0 * hvd.size() ** 2] * 3


@needs_ranks(2)
def check_on_a_process_set() -> None:
    tail = hvd.add_process_set(range(1, hvd.size()))
    if tail.included():
        total = sum((weights(rank, 4) for rank in tail.ranks), torch.zeros(4))
        x = torch.ones(4)
        expect(gradient_of(x, lambda t: hvd.allreduce(t, process_set=tail)), total / tail.size())
        gradient = gradient_of(x, lambda t: hvd.broadcast(t, 1, process_set=tail))
        expect(gradient, total if hvd.rank() == 1 else torch.zeros(4))
        whole = sum((weights(rank, 4 * tail.size()) for rank in tail.ranks), torch.zeros(4 * tail.size()))
        gradient = gradient_of(x, lambda t: hvd.allgather(t, process_set=tail))
        expect(gradient, whole[4 * tail.rank() : 4 * tail.rank() + 4])
        x = torch.ones(tail.size())
        gradient = gradient_of(x, lambda t: hvd.alltoall(t, process_set=tail))
        expect(gradient, torch.stack([weights(to, tail.size())[tail.rank()] for to in tail.ranks]))
        gradient = gradient_of(x, lambda t: hvd.reducescatter(t, process_set=tail))
        expect(gradient, torch.cat([weights(rank, 1) for rank in tail.ranks]) / tail.size())
    hvd.remove_process_set(tail)


def check_async_and_in_place_are_not_recorded() -> None:
    x = torch.ones(3, requires_grad=True)
    assert not hvd.synchronize(hvd.allreduce_async(x)).requires_grad
    y = x * 1
    before = y._version
    hvd.allreduce_(y)
    assert y._version > before
