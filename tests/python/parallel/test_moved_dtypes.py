"""Types that are never added up: allgather, broadcast and alltoall move them, reductions refuse them."""

from __future__ import annotations

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, needs_ranks, run_check
from roundelay.errors import MismatchError

MOVED = (
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
)


@pytest.mark.parametrize("np", [1, 2, 3])
def test_moved_dtypes(np: int, check: Check) -> None:
    run_check(check, np)


def _of(rank: int, dtype: torch.dtype, rows: int = 6) -> torch.Tensor:
    """Any bits."""
    generator = torch.Generator().manual_seed(rank)
    bits = torch.randint(0, 256, (rows, 5 * dtype.itemsize), dtype=torch.uint8, generator=generator)
    return bits.view(dtype)


def _same(one: torch.Tensor, other: torch.Tensor) -> None:
    assert one.dtype == other.dtype
    assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def check_allgather_broadcast_and_alltoall_keep_all_bits() -> None:
    size, rank = hvd.size(), hvd.rank()
    for dtype in MOVED:
        own = _of(rank, dtype, 6 * size)
        every = [_of(one, dtype, 6 * size) for one in range(size)]
        _same(hvd.allgather(own), torch.cat([one.view(torch.uint8) for one in every]).view(dtype))
        _same(hvd.broadcast(own, size - 1), every[-1])
        parts = [one.view(torch.uint8)[6 * rank : 6 * (rank + 1)] for one in every]
        _same(hvd.alltoall(own), torch.cat(parts).view(dtype))
        transposed = hvd.broadcast(own.view(torch.uint8).view(dtype).t(), 0)
        _same(transposed.contiguous(), every[0].t().contiguous())


def check_reductions_refuse_them() -> None:
    for dtype in MOVED:
        for reduce in (hvd.allreduce, hvd.reducescatter):
            with pytest.raises(ValueError, match="never added up; supported are float64"):
                reduce(_of(0, dtype), name="sum", op=hvd.Sum)
    hvd.allreduce(torch.ones(3))  # the job goes on


@needs_ranks(2)
def check_types_of_one_size_are_not_mixed_up() -> None:
    dtype = torch.float8_e5m2 if hvd.rank() == 0 else torch.float8_e4m3fn
    with pytest.raises(MismatchError, match="float8_e5m2.*float8_e4m3fn|float8_e4m3fn.*float8_e5m2"):
        hvd.broadcast(_of(0, dtype), 0, name="mixed")
    dtype = torch.uint16 if hvd.rank() == 0 else torch.int16
    with pytest.raises(MismatchError, match="int16"):
        hvd.allgather(_of(0, dtype), name="signs")
