"""sparse_allreduce_async: entries of all ranks, also none, and its errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check

anything: Any = hvd  # for calls that a type checker refuses


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_sparse(np: int, check: Check) -> None:
    run_check(check, np)


def embedding_gradient(rank: int) -> torch.Tensor:
    """Rows 0 and `rank` of 6; row 0 twice."""
    indices = torch.tensor([[0, rank, 0]])
    return torch.sparse_coo_tensor(indices, torch.full((3, 4), 1.0 + rank), (6, 4))


def check_sum_and_average() -> None:
    dense = sum((embedding_gradient(rank).to_dense() for rank in range(hvd.size())), torch.zeros(6, 4))
    for name in (None, "embedding"):
        for op, expected in ((hvd.Sum, dense), (hvd.Average, dense / hvd.size())):
            result = hvd.sparse_allreduce_async(embedding_gradient(hvd.rank()), name, op)()
            assert result.layout == torch.sparse_coo
            assert result.shape == (6, 4)
            torch.testing.assert_close(result.coalesce().to_dense(), expected)


def check_two_sparse_dimensions_and_integers() -> None:
    mine = torch.eye(3, dtype=torch.int64).to_sparse() * (hvd.rank() + 2)
    total = sum(rank + 2 for rank in range(hvd.size()))
    wait = hvd.sparse_allreduce_async(mine, name="eye", op=hvd.Sum)
    assert torch.equal(wait().to_dense(), torch.eye(3, dtype=torch.int64) * total)
    assert torch.equal(wait().to_dense(), torch.eye(3, dtype=torch.int64) * total), "called again"


def check_no_entries_on_some_or_all_ranks() -> None:
    nothing = torch.zeros(4, 3).to_sparse(1)
    assert hvd.sparse_allreduce_async(nothing, "none", hvd.Average)().to_dense().abs().sum() == 0
    mine = torch.ones(4, 3).to_sparse(1) if hvd.rank() == hvd.size() - 1 else nothing
    assert torch.equal(hvd.sparse_allreduce_async(mine, "last", hvd.Sum)().to_dense(), torch.ones(4, 3))


def check_gradient_of_an_embedding() -> None:
    embedding = torch.nn.Embedding(5, 2, sparse=True)
    embedding(torch.tensor([1, hvd.rank()])).sum().backward()
    assert embedding.weight.grad is not None
    result = hvd.sparse_allreduce_async(embedding.weight.grad, "weight.grad", hvd.Sum)().to_dense()
    expected = torch.zeros(5, 2)
    for rank in range(hvd.size()):
        for row in (1, rank):
            expected[row] += 1
    assert torch.equal(result, expected)


def check_wrong_calls() -> None:
    sparse = torch.eye(3).to_sparse()
    for call in (
        lambda: hvd.sparse_allreduce_async(torch.eye(3), "x", hvd.Sum),
        lambda: hvd.sparse_allreduce_async(torch.eye(3).to_sparse_csr(), "x", hvd.Sum),
        lambda: hvd.sparse_allreduce_async(sparse, "x", hvd.Max),
        lambda: anything.sparse_allreduce_async(sparse, 3, hvd.Sum),
    ):
        with pytest.raises(ValueError, match="^sparse allreduce(: name| of 'x')"):
            call()  # type: ignore[no-untyped-call]
    assert torch.equal(hvd.sparse_allreduce_async(sparse, "x", hvd.Average)().to_dense(), torch.eye(3))


@needs_ranks(2)
def check_shapes_that_differ() -> None:
    odd = int(hvd.rank() == hvd.size() - 1)
    for shape in ((3 + odd, 4), (3, 4 + odd), (3, 4) + (2,) * odd):
        wait = hvd.sparse_allreduce_async(torch.ones(shape).to_sparse(1), "differs", hvd.Sum)
        with pytest.raises(hvd.HorovodInternalError, match=rf"'differs'.*rank {hvd.size() - 1} has"):
            wait()
    wait = hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), "differs", hvd.Sum if odd else hvd.Average)
    words = f"rank 0 has Average, rank {hvd.size() - 1} has Sum"
    if torch.get_default_device().type != "cpu":
        words = "Mismatched allgather of 'differs'"  # found by the coordinator, as nobody waits for a GPU
    with pytest.raises(hvd.HorovodInternalError, match=words):
        wait()
    result = hvd.sparse_allreduce_async(torch.ones(2, 2).to_sparse(), "differs", hvd.Sum)()
    assert result.to_dense().tolist() == [[hvd.size()] * 2] * 2


def check_while_a_rank_has_joined() -> None:
    if hvd.rank() > 0:
        wait = hvd.sparse_allreduce_async(torch.eye(2).to_sparse() * hvd.rank(), "joined", hvd.Sum)
        assert torch.equal(wait().to_dense(), torch.eye(2) * sum(range(hvd.size())))
    if hvd.rank() > 0 and hvd.size() > 2:
        rows = 5 + hvd.rank()
        wait = hvd.sparse_allreduce_async(torch.ones(rows, 2).to_sparse(1), "joined", hvd.Sum)
        with pytest.raises(hvd.HorovodInternalError, match=r"rank 1 has \[6, 2\], rank 2 has \[7, 2\]"):
            wait()
    hvd.join()
