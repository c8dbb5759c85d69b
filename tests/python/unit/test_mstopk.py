"""The selection of the largest magnitudes, from Python. tests/cpp/unit/top_k_test.cc has the rest."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

import roundelay.torch as hvd
from roundelay.torch._internal.mstopk import Select

_FLOATS = some.lists(some.floats(width=32), min_size=1, max_size=200)


def _exact(tensor: torch.Tensor, k: int) -> list[int]:
    magnitudes = tensor.flatten().float().abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
    order = np.argsort(-magnitudes.numpy(), kind="stable")
    return sorted(order[:k].tolist())


@settings(deadline=None)
@given(_FLOATS, some.data())
def test_any_values_are_selected_whatever_the_way(numbers: list[float], data: some.DataObject) -> None:
    tensor = torch.tensor(numbers)
    k = data.draw(some.integers(0, len(numbers)))
    selects: tuple[Select, ...] = ("mstopk", "radix", "auto")
    for select in selects:
        values, indices = hvd.mstopk(tensor, k, select=select)
        assert indices.dtype == torch.int64
        assert (values.shape, indices.shape) == ((k,), (k,))
        assert len(set(indices.tolist())) == k
        assert torch.equal(values.view(torch.int32), tensor[indices].view(torch.int32))
        if select != "mstopk":
            assert indices.tolist() == _exact(tensor, k)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_types_and_shapes(dtype: torch.dtype) -> None:
    tensor = torch.randn(40, 50, generator=torch.Generator().manual_seed(0)).to(dtype).t()
    values, indices = hvd.mstopk(tensor, 100, select="radix")
    assert values.dtype == dtype
    assert torch.equal(values, tensor.flatten()[indices])
    assert indices.tolist() == _exact(tensor, 100)
    values, indices = hvd.mstopk(torch.empty(0, 3, dtype=dtype), 0)
    assert (values.dtype, values.numel(), indices.numel()) == (dtype, 0, 0)


def test_a_gradient_is_not_recorded() -> None:
    values, _ = hvd.mstopk(torch.ones(5, requires_grad=True), 2)
    assert not values.requires_grad


@pytest.mark.parametrize("density", [0.001, 0.01, 0.1, 0.5])
def test_mstopk_has_the_energy_of_the_largest(density: float) -> None:
    generator = torch.Generator().manual_seed(1)
    normal = torch.randn(1 << 18, generator=generator)
    for tensor in (normal, normal.abs().log(), normal**3):
        k = int(density * tensor.numel())
        chosen, exact = hvd.mstopk(tensor, k)[0], hvd.mstopk(tensor, k, select="radix")[0]
        assert torch.allclose(exact.abs().sort().values, tensor.abs().topk(k).values.sort().values)
        assert chosen.square().sum() >= 0.999 * exact.square().sum()


def test_the_seed_decides_between_equal_values() -> None:
    tied = torch.full((1000,), 2.0)
    first = hvd.mstopk(tied, 10, seed=1)[1]
    assert torch.equal(first, hvd.mstopk(tied, 10, seed=1)[1])
    assert not torch.equal(first, hvd.mstopk(tied, 10, seed=2)[1])
    assert torch.equal(first, torch.arange(10) + first[0])
    assert hvd.mstopk(tied, 10, 10**30, seed=2**64 - 1)[1].numel() == 10


@pytest.mark.parametrize(
    ("tensor", "k", "options", "error", "text"),
    [
        (torch.ones(3), 4, {}, ValueError, r"k must be from 0 to 3 \(the tensor has 3 values\), not 4"),
        (torch.ones(3), -1, {}, ValueError, "k must be from 0 to 3"),
        (torch.ones(3), 1.0, {}, TypeError, "k must be an integer, not 1.0"),
        (torch.ones(3), 1, {"samplings": 0}, ValueError, "samplings must be at least 1, not 0"),
        (torch.ones(3), 1, {"seed": -1}, ValueError, "seed must be from 0 to"),
        (torch.ones(3), 1, {"select": "best"}, ValueError, "select must be one of mstopk, radix, auto"),
        (torch.ones(3, dtype=torch.int64), 1, {}, TypeError, "must be fp32, fp16 or bf16, not torch.int64"),
        (torch.ones(3, dtype=torch.float64), 1, {}, TypeError, "would change the order"),
        (torch.ones(3).to_sparse(), 1, {}, TypeError, "call to_dense"),
        (torch.ones(3, device="meta"), 1, {}, ValueError, "is on device meta, but"),
        ([1.0], 1, {}, TypeError, "must be a torch.Tensor, not list"),
    ],
)
def test_bad_input(
    tensor: torch.Tensor, k: int, options: dict[str, int], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        hvd.mstopk(tensor, k, **options)  # type: ignore[arg-type]
