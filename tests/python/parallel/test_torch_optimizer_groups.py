"""DistributedOptimizer on several ranks: groups of gradients, and sparse ones. All sums are exact."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check
from small_gradients import add_gradients, gradient_of, make_parameters, sum_of_ranks, wrapped_sgd


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_groups(np: int, check: Check) -> None:
    run_check(check, np)


def check_groups_reduce_as_single_gradients_do() -> None:
    for choice in (0, 1, 2, 7, "lists"):
        parameters = make_parameters(5)
        groups: Any = [parameters[:2], [parameters[4]]] if choice == "lists" else choice
        for passes in (1, 2):
            optimizer = wrapped_sgd(parameters, groups=groups, backward_passes_per_step=passes)
            for _ in range(3):
                optimizer.zero_grad()
                for _ in range(passes):
                    add_gradients(*((p, (hvd.rank() + 1) * (k + 1.0)) for k, p in enumerate(parameters)))
                for k, parameter in enumerate(parameters):
                    assert gradient_of(parameter) == [passes * sum_of_ranks() * (k + 1)] * 3
                optimizer.step()


def check_num_groups_is_the_deprecated_name() -> None:
    parameters = make_parameters(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer = wrapped_sgd(parameters, num_groups=2)
    assert [warning.category for warning in caught] == [DeprecationWarning]
    add_gradients(*((parameter, 1.0) for parameter in parameters))
    assert gradient_of(parameters[2]) == [hvd.size()] * 3
    optimizer.step()


def check_wrong_groups() -> None:
    (parameter,) = make_parameters(1)
    for groups in (-1, 1.5, True, "all", [parameter], [[parameter], [parameter]], [["weight"]], [3]):
        with pytest.raises(ValueError, match="groups"):
            wrapped_sgd([parameter], groups=groups)


def check_a_group_that_some_ranks_have_in_part() -> None:
    """Rank r lacks parameter r; nobody has the last one."""
    parameters = make_parameters(6)
    for last in (False, True):
        optimizer = wrapped_sgd(parameters, groups=1)
        for _ in range(2):
            optimizer.zero_grad()
            mine = [p for k, p in enumerate(parameters[: 5 + last]) if k != hvd.rank() or hvd.size() == 1]
            add_gradients(*((parameter, hvd.rank() + 1.0) for parameter in mine))
            for k, parameter in enumerate(parameters[:5]):
                lacking = k + 1.0 if k < hvd.size() > 1 else 0.0
                assert gradient_of(parameter) == [sum_of_ranks() - lacking] * 3
            optimizer.step()
            assert (parameters[5].grad is None) == (not last)


def check_a_group_that_only_some_ranks_have_whole() -> None:
    parameters = make_parameters(3)
    optimizer = wrapped_sgd(parameters, groups=[parameters])
    for everything in (range(1), range(1, 4), range(4)):
        optimizer.zero_grad()
        whole = hvd.rank() in everything
        add_gradients(*((parameter, hvd.rank() + 1.0) for parameter in parameters[: 3 if whole else 1]))
        optimizer.step()
        assert gradient_of(parameters[0]) == [sum_of_ranks()] * 3
        some = sum(rank + 1.0 for rank in range(hvd.size()) if rank in everything)
        if some:
            assert gradient_of(parameters[2]) == [some] * 3


def check_groups_of_many_dtypes_with_compression() -> None:
    for compression in (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16):
        dtypes = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
        parameters = [torch.nn.Parameter(torch.zeros(3, dtype=dtype)) for dtype in dtypes]
        optimizer = wrapped_sgd(parameters, groups=1, compression=compression)
        for parameter in parameters:
            add_gradients((parameter, hvd.rank() + 1.0))
        optimizer.step()
        for parameter, dtype in zip(parameters, dtypes, strict=True):
            assert parameter.grad is not None
            assert parameter.grad.dtype == dtype
            assert gradient_of(parameter) == [sum_of_ranks()] * 3


def check_frozen_members_and_members_added_later() -> None:
    parameters = make_parameters(4)
    parameters[1].requires_grad_(False)
    optimizer = wrapped_sgd(parameters[:3], groups=1)
    optimizer.add_param_group({"params": [parameters[3]]})
    for step in range(4):
        parameters[1].requires_grad_(step in (1, 2))
        optimizer.zero_grad()
        add_gradients(*((parameter, hvd.rank() + 1.0) for parameter in parameters))
        optimizer.step()
        for parameter in parameters:
            if parameter.requires_grad:
                assert gradient_of(parameter) == [sum_of_ranks()] * 3, step


def check_several_backwards_on_a_group() -> None:
    parameters = make_parameters(2)
    optimizer = wrapped_sgd(parameters, groups=1)
    for _ in range(2):
        optimizer.zero_grad()
        add_gradients((parameters[0], hvd.rank() + 1.0))
        add_gradients((parameters[0], 2.0), (parameters[1], 1.0))
        assert gradient_of(parameters[0]) == [sum_of_ranks() + 2.0 * hvd.size()] * 3
        assert gradient_of(parameters[1]) == [hvd.size()] * 3
        optimizer.step()


def check_predivide_with_groups() -> None:
    parameters = make_parameters(2)
    plain = torch.optim.SGD(parameters, lr=1.0)
    hvd.DistributedOptimizer(plain, gradient_predivide_factor=2.0, groups=1)
    add_gradients(*((parameter, 4.0 * hvd.size() * (hvd.rank() + 1)) for parameter in parameters))
    assert gradient_of(parameters[1]) == [4.0 * sum_of_ranks()] * 3


def _dense(parameter: torch.Tensor) -> list[list[float]]:
    assert parameter.grad is not None
    assert parameter.grad.layout == torch.sparse_coo
    rows: list[list[float]] = parameter.grad.to_dense().tolist()
    return rows


@needs_ranks(2)
def check_sparse_gradients() -> None:
    """Rank r looks up rows r and 5: every rank gets all of them."""
    for op, share in ((hvd.Sum, 1.0), (hvd.Average, 1.0 / hvd.size())):
        for groups in (None, 1):
            embedding = torch.nn.Embedding(6, 2, sparse=True)
            scale = torch.nn.Parameter(torch.ones(2))
            parameters = [*embedding.parameters(), scale]
            plain = torch.optim.SGD(parameters, lr=1.0)
            optimizer = hvd.DistributedOptimizer(plain, op=op, groups=groups)
            for _ in range(2):
                optimizer.zero_grad()
                (embedding(torch.tensor([hvd.rank(), 5])).sum() * hvd.size() + scale.sum()).backward()
                expected = [[hvd.size() * share] * 2 if row < hvd.size() else [0.0] * 2 for row in range(5)]
                assert _dense(embedding.weight) == [*expected, [hvd.size() ** 2 * share] * 2]
                assert scale.grad is not None
                assert scale.grad.tolist() == [hvd.size() * share] * 2
                optimizer.step()


@needs_ranks(2)
def check_sparse_on_some_ranks_only() -> None:
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    (other,) = make_parameters(1)
    optimizer = wrapped_sgd([*embedding.parameters(), other])
    looked_up = embedding(torch.tensor([1])).sum() if hvd.rank() == 0 else torch.zeros(())
    (looked_up + other.sum()).backward()
    assert _dense(embedding.weight) == [[0.0] * 2, [1.0] * 2, [0.0] * 2, [0.0] * 2]
    optimizer.step()
    optimizer.zero_grad()
    # The other ranks use the weights as a matrix: the gradient is dense there, and so it is everywhere.
    loss = embedding(torch.tensor([1])).sum() if hvd.rank() == 0 else embedding.weight.sum()
    loss.backward()
    rest = hvd.size() - 1.0
    assert embedding.weight.grad is not None
    assert embedding.weight.grad.tolist() == [[rest] * 2, [rest + 1] * 2, [rest] * 2, [rest] * 2]


@needs_ranks(2)
def check_several_backwards_with_sparse_gradients() -> None:
    embedding = torch.nn.Embedding(3, 1, sparse=True)
    optimizer = wrapped_sgd(list(embedding.parameters()))
    for passes in (1, 2):
        optimizer.set_backward_passes_per_step(passes)  # type: ignore[attr-defined]
        for _ in range(2):
            embedding(torch.tensor([0])).sum().backward()
        assert _dense(embedding.weight) == [[2.0 * hvd.size()], [0.0], [0.0]]
        optimizer.step()
        optimizer.zero_grad()


def check_sparse_gradients_with_their_optimizer() -> None:
    embedding, alone = torch.nn.Embedding(5, 2, sparse=True), torch.nn.Embedding(5, 2, sparse=True)
    alone.weight.data.copy_(embedding.weight.data)
    optimizer = hvd.DistributedOptimizer(torch.optim.SparseAdam(embedding.parameters(), lr=0.5))
    expected = torch.optim.SparseAdam(alone.parameters(), lr=0.5)
    hvd.broadcast_parameters(embedding.state_dict(), 0)
    hvd.broadcast_parameters(alone.state_dict(), 0)
    for step in range(3):
        optimizer.zero_grad()
        expected.zero_grad()
        embedding(torch.tensor([hvd.rank() % 2, step])).sum().backward()
        rows = torch.tensor([row for rank in range(hvd.size()) for row in (rank % 2, step)])
        (alone(rows).sum() / hvd.size()).backward()
        optimizer.step()
        expected.step()
    torch.testing.assert_close(embedding.weight, alone.weight)


@needs_ranks(2)
def check_sparse_where_it_has_no_meaning() -> None:
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    plain = torch.optim.SGD(embedding.parameters(), lr=1.0)
    hvd.DistributedOptimizer(plain, op=hvd.Max)
    with pytest.raises(ValueError, match="sparse_as_dense"):
        embedding(torch.tensor([hvd.rank()])).sum().backward()
    plain.zero_grad()
    hvd.DistributedOptimizer(plain, op=hvd.Max, sparse_as_dense=True)
    embedding(torch.tensor([hvd.rank()])).sum().backward()
    assert embedding.weight.grad is not None
    assert _dense(embedding.weight) == [[float(row < hvd.size())] * 2 for row in range(4)]


@needs_ranks(2)
def check_a_mismatch_in_a_group_is_an_error_on_all_and_training_goes_on() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(3 + (hvd.rank() == 0))), torch.nn.Parameter(torch.zeros(2))]
    optimizer = wrapped_sgd(parameters, groups=1)
    for _ in range(2):
        with pytest.raises(hvd.HorovodInternalError, match=r"'noname.0.0' has shape \(4,\) on rank 0"):
            add_gradients(*((parameter, 1.0) for parameter in parameters))
        optimizer.zero_grad()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def check_a_group_of_what_is_no_parameter() -> None:
    parameters = make_parameters(2)
    for foreign in (parameters[1].data, torch.nn.Parameter(torch.zeros(3))):
        with pytest.raises(
            ValueError, match=r"groups\[1\] has a tensor of shape \(3,\) that is no parameter"
        ):
            wrapped_sgd(parameters, groups=[[parameters[0]], [foreign]])
