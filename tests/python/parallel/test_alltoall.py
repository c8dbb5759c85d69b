"""alltoall: with and without splits, uneven and empty parts, and its errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check

try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]  # torch does without it, too


@pytest.mark.parametrize("np", [1, 2, 3, 4])
def test_alltoall(np: int, check: Check) -> None:
    run_check(check, np)


class Count:
    """A number of another library."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


def rows(sender: int, receiver: int, count: int, *rest: int) -> torch.Tensor:
    return torch.full((count, *rest), float(10 * sender + receiver))


def sent(counts: list[int], *rest: int) -> torch.Tensor:
    return torch.cat([rows(hvd.rank(), to, count, *rest) for to, count in enumerate(counts)])


def expected(counts: list[int], *rest: int) -> torch.Tensor:
    """`counts`: from each rank."""
    return torch.cat([rows(rank, hvd.rank(), count, *rest) for rank, count in enumerate(counts)])


def check_even() -> None:
    for rest in [(), (3,), (2, 2)]:
        counts = [2] * hvd.size()
        output, received = hvd.synchronize(hvd.alltoall_async(sent(counts, *rest), name="even"))
        for result in (hvd.alltoall(sent(counts, *rest)), output):
            assert torch.equal(result, expected(counts, *rest))
        assert received.dtype == torch.int32
        assert received.tolist() == counts
    assert hvd.alltoall(torch.empty(0, 2)).shape == (0, 2)


def check_splits_of_every_kind() -> None:
    counts = [hvd.rank() + to for to in range(hvd.size())]
    coming = [rank + hvd.rank() for rank in range(hvd.size())]
    splits: list[Any] = [
        counts, tuple(counts), torch.tensor(counts), torch.tensor(counts, dtype=torch.int32),
        [Count(count) for count in counts], [torch.tensor(count) for count in counts],
    ]  # fmt: skip
    if numpy is not None:
        splits += [
            numpy.array(counts),
            numpy.array(counts, dtype=numpy.int32),
            [numpy.int64(count) for count in counts],
        ]
    for given in splits:
        mine = sent(counts, 3)
        for output, received in (
            hvd.alltoall(mine, given),
            hvd.synchronize(hvd.alltoall_async(mine, splits=given, name="splits")),
        ):
            assert torch.equal(output, expected(coming, 3))
            assert received.dtype == torch.int32
            assert received.tolist() == coming


def check_dtypes() -> None:
    counts = [1 + (to + hvd.rank()) % 2 for to in range(hvd.size())]
    coming = [1 + (hvd.rank() + rank) % 2 for rank in range(hvd.size())]
    for dtype in (
        torch.float64,
        torch.bfloat16,
        torch.float16,
        torch.int64,
        torch.int8,
        torch.uint8,
        torch.bool,
    ):
        output, _ = hvd.alltoall(sent(counts).to(dtype), counts)
        assert torch.equal(output, expected(coming).to(dtype)), dtype


def check_all_rows_for_one_rank() -> None:
    last = hvd.size() - 1
    counts = [0] * last + [3]
    output, received = hvd.alltoall(sent(counts), counts)
    coming = [3 if hvd.rank() == last else 0] * hvd.size()
    assert received.tolist() == coming
    assert torch.equal(output, expected(coming))
    nothing = [0] * hvd.size()
    output, received = hvd.alltoall(torch.empty(0, 5), nothing)
    assert output.shape == (0, 5)
    assert received.tolist() == nothing


def check_splits_that_change_under_one_name() -> None:
    for turn in range(5):
        counts = [(turn + to) % 3 for to in range(hvd.size())]
        coming = [(turn + hvd.rank()) % 3] * hvd.size()
        output, _ = hvd.alltoall(sent(counts), counts, name="varying")
        assert torch.equal(output, expected(coming))


def check_strided_input() -> None:
    mine = torch.arange(12.0 * hvd.size()).reshape(4, 3 * hvd.size()).t()
    assert torch.equal(
        hvd.alltoall(mine), torch.cat([mine[3 * hvd.rank() : 3 * hvd.rank() + 3]] * hvd.size())
    )


def check_wrong_calls() -> None:
    size = hvd.size()
    x = torch.ones(2 * size)
    wrong: list[Any] = [
        [2] * (size - 1), [2] * (size + 1), [1] * size, [3] * size, [-1] * size, [2.0] * size, "22", 2,
        torch.full((size,), 2.0), torch.full((1, size), 2), torch.full((size,), 2, device="meta"),
        [True] * size, [torch.tensor(True)] * size, [torch.tensor(2, device="meta")] * size,
        {2: 2}, {2}, b"2", [None] * size,
    ]  # fmt: skip
    if numpy is not None:
        wrong += [
            numpy.full(size, 2.0),
            numpy.full((1, size), 2),
            numpy.full(size, True),
            numpy.array(2),
            numpy.full(size, 1),
        ]
    for splits in wrong:
        with pytest.raises(ValueError, match="splits"):
            hvd.alltoall(x, splits)
    with pytest.raises(ValueError, match="dimensions"):
        hvd.alltoall(torch.tensor(1.0))
    if size > 1:
        with pytest.raises(ValueError, match=r"rows cannot be divided evenly"):
            hvd.alltoall(torch.ones(size + 1))
    assert hvd.alltoall(x).shape == x.shape


@needs_ranks(2)
def check_a_wrong_call_on_one_rank() -> None:
    x = torch.ones(hvd.size())
    if hvd.rank() == 0:
        with pytest.raises(ValueError, match="splits"):
            hvd.alltoall(x, [0] * hvd.size(), name="mine")
    else:
        with pytest.raises(hvd.HorovodInternalError, match=r"rank 0.*splits"):
            hvd.alltoall(x, name="mine")
    with pytest.raises(hvd.HorovodInternalError, match="columns"):
        hvd.alltoall(torch.ones(hvd.size(), 1 + hvd.rank()), name="columns")
    assert hvd.alltoall(x, name="mine").tolist() == [1.0] * hvd.size()
