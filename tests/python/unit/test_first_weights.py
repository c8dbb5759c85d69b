"""The numbers by which ranks compare weights, and the warning."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from roundelay.torch._internal.optimizer.first_weights import sums_of, unequal, warning

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float8_e5m2, torch.complex64, torch.complex128)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 2, 3, 7, 64])
def test_each_element_counts(dtype: torch.dtype, count: int) -> None:
    same = sums_of({"w": torch.ones(count).to(dtype)})
    assert sums_of({"w": torch.ones(count).to(dtype)}) == same
    for place in range(count):
        other = torch.ones(count)
        other[place] = 2.0
        assert sums_of({"w": other.to(dtype)}) != same


def test_values_of_all_parts_of_a_large_parameter_count() -> None:
    values = torch.zeros(100_000)
    for part in values.chunk(500):
        same = sums_of({"w": values})
        part += 1.0
        assert sums_of({"w": values}) != same


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_where_values_lie_does_not_count(dtype: torch.dtype) -> None:
    values = torch.randn(20, 30, 4, 5).to(dtype)
    moved = torch.empty(values.numel() + 3, dtype=dtype)
    for offset in range(3):
        view = moved[offset : offset + values.numel()].view(values.shape)
        view.copy_(values)
        assert sums_of({"w": view}) == sums_of({"w": values})
    assert sums_of({"w": values.to(memory_format=torch.channels_last)}) == sums_of({"w": values})


def test_parameters_without_values() -> None:
    lazy = nn.LazyLinear(3).weight
    sparse = torch.eye(2).to_sparse()
    assert sums_of({"lazy": lazy, "sparse": sparse, "empty": torch.empty(0)}) == {"empty": 0}


def test_the_warning() -> None:
    assert unequal([(0, {"a": 1}), (1, {"a": 1})]) is None
    assert unequal([(0, {}), (1, {"a": 1}), (2, {"a": 1})]) is None  # rank 0 captures a graph
    rows = [(0, {"a": 1, "b": 2}), *((rank, {"a": 1, "b": 3}) for rank in range(1, 12))]
    found = unequal(rows)
    assert found is not None
    text = warning(found, "gradient")
    assert text.startswith(
        "ranks 1, 2, 3, 4, 5, 6, 7, 8 ... begin with other values of parameter 'b' than rank 0"
    )
    assert "1 of the 2 parameters of optimizer 'gradient'" in text
