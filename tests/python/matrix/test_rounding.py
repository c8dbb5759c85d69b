"""What is rounded is rounded once: averages of equal inputs are those inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from exact_cells import FLOATS, INTEGERS, expect_equal
from ranks import Check, mpirun, run_check

pytestmark = pytest.mark.skipif(mpirun() is None, reason="no mpirun")

LENGTHS = [1, 17, 1000, 100_003]
AVERAGES: dict[str, Callable[[torch.Tensor], Any]] = {
    "allreduce": lambda tensor: hvd.allreduce(tensor),
    "allreduce_": lambda tensor: hvd.allreduce_(tensor.clone()),
    "allreduce_async": lambda tensor: hvd.synchronize(hvd.allreduce_async(tensor, op=hvd.Average)),
    "grouped_allreduce": lambda tensor: hvd.grouped_allreduce([tensor, tensor[:3].clone()])[0],
    "reducescatter": lambda tensor: hvd.allgather(hvd.reducescatter(tensor, op=hvd.Average)),
}


@pytest.mark.parametrize("np", [2, 3, 4])
def test_rounding(np: int, check: Check) -> None:
    run_check(check, np)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8)


def random_values(dtype: torch.dtype, length: int) -> torch.Tensor:
    """Of every magnitude the dtype has, subnormal ones too; four times the largest is finite."""
    generator = torch.Generator().manual_seed(length)
    info = torch.finfo(dtype)
    low, high = math.log2(info.tiny) - 8, math.log2(info.max) - 3
    exponents = low + (high - low) * torch.rand(length, generator=generator, dtype=torch.float64)
    mantissas = 1 + torch.rand(length, generator=generator, dtype=torch.float64)
    values = (mantissas * exponents.floor().exp2()).to(dtype)
    return values * (1 - 2 * torch.randint(0, 2, (length,), generator=generator))


def expect_same_bits(result: torch.Tensor, right: torch.Tensor, what: str) -> None:
    differ = (bits(result).view(len(right), -1) != bits(right).view(len(right), -1)).any(1)
    if differ.any():
        first = int(differ.nonzero()[0])
        values = f"{result[first].item()!r}, must be {right[first].item()!r}"
        raise AssertionError(f"{what}: {int(differ.sum())} of {len(right)} differ, [{first}] is {values}")


def check_average_of_equal_values_is_bit_equal() -> None:
    faults = []
    for name, average in AVERAGES.items():
        for dtype in FLOATS:
            for length in LENGTHS:
                tensor = random_values(getattr(torch, dtype), length)
                assert torch.isfinite(tensor).all()
                try:
                    expect_same_bits(average(tensor), tensor, f"{name} of {length} {dtype}")
                except AssertionError as error:
                    faults.append(str(error))
    assert not faults, "\n".join(faults)


def check_average_of_equal_integers() -> None:
    """Sums are wider than the dtype; the quotient is exact."""
    for dtype in INTEGERS:
        info = torch.iinfo(getattr(torch, dtype))
        limit = info.max // hvd.size() if dtype == "int64" else info.max
        lowest = -limit if info.min else 0
        tensor = torch.tensor([limit, limit - 1, lowest, 1, 0], dtype=getattr(torch, dtype))
        expect_equal(hvd.allreduce(tensor), tensor)


def check_average_of_integers_truncates_toward_zero() -> None:
    mine = torch.tensor([1 if hvd.rank() == 0 else 0, -1 if hvd.rank() == 0 else 0, -hvd.size() - 1])
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8):
        assert hvd.allreduce(mine.to(dtype)).tolist() == [0, 0, -hvd.size() - 1], dtype


def check_min_and_max_propagate_nan() -> None:
    nan = float("nan")
    for dtype in FLOATS:
        first, last = hvd.rank() == 0, hvd.rank() == hvd.size() - 1
        mine = torch.tensor([nan if first else 1.0, nan if last else 1.0, 1.0])
        for op in (hvd.Min, hvd.Max):
            result = hvd.allreduce(mine.to(getattr(torch, dtype)), op=op)
            assert result.isnan().tolist() == [True, True, False], (dtype, op)


def check_adasum() -> None:
    """Equal vectors give themselves, orthogonal ones their sum; two others are what the formula says."""
    for dtype in FLOATS:
        equal = torch.tensor([3.0, -4.0, 0.0, 12.0]).to(getattr(torch, dtype))
        expect_equal(hvd.allreduce(equal, op=hvd.Adasum), equal)
    a, b = torch.tensor([1.0, 2.0, -3.0]).double(), torch.tensor([2.0, 0.5, 1.0]).double()
    if hvd.size() == 2:
        dot = a @ b
        right = (1 - dot / (2 * (a @ a))) * a + (1 - dot / (2 * (b @ b))) * b
        result = hvd.allreduce(b if hvd.rank() else a, op=hvd.Adasum)
        assert torch.allclose(result, right, rtol=1e-14)


def check_adasum_looks_at_each_tensor_of_a_group_alone() -> None:
    """In one vector with the other, the equal tensor would not come back as it is."""
    equal = torch.tensor([3.0, 4.0])
    own = torch.zeros(hvd.size())
    own[hvd.rank()] = 5.0
    first, second = hvd.grouped_allreduce([equal, own], op=hvd.Adasum)
    expect_equal(first, equal)
    assert second.tolist() == [5.0] * hvd.size()
