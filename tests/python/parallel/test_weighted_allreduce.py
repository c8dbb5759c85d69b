"""allreduce(weight=): averages over samples. All numbers are exact."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from ranks import Check, run_check
from roundelay.errors import HorovodInternalError
from some_ranks import process_set_of
from weights import uneven, values, weighted_mean


@pytest.mark.parametrize("np", [2, 4])
def test_weighted_allreduce(np: int, check: Check) -> None:
    run_check(check, np)


def _everywhere(*tensors: torch.Tensor, **arguments: Any) -> Iterator[list[torch.Tensor]]:
    """The results of all functions that take weights. Those in place get copies."""
    for tensor in tensors:
        yield [hvd.allreduce(tensor, **arguments)]
        yield [hvd.allreduce_(tensor.clone(), **arguments)]
        yield [hvd.synchronize(hvd.allreduce_async(tensor, **arguments))]
        yield [hvd.synchronize(hvd.allreduce_async_(tensor.clone(), **arguments))]
    yield hvd.grouped_allreduce(tensors, **arguments)
    yield hvd.grouped_allreduce_([one.clone() for one in tensors], **arguments)
    yield hvd.synchronize(hvd.grouped_allreduce_async(tensors, **arguments))
    yield hvd.synchronize(hvd.grouped_allreduce_async_([one.clone() for one in tensors], **arguments))


def check_each_function_counts_samples() -> None:
    own, weights = hvd.rank(), uneven()
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64):
        tensor = torch.full((5,), values()[own], dtype=dtype)
        expected = torch.full((5,), weighted_mean(), dtype=dtype)
        for results in _everywhere(tensor, weight=weights[own]):
            assert all(torch.equal(result, expected) for result in results), (dtype, results)


def check_half_products_do_not_overflow() -> None:
    tensor = torch.full((3,), 60000.0, dtype=torch.float16)
    for results in _everywhere(tensor, weight=1000.0):
        assert results[0].tolist() == tensor.tolist()


def check_a_rank_without_samples_adds_nothing() -> None:
    last = hvd.rank() == hvd.size() - 1
    loss = torch.full((2,), math.nan if last else 6.0)
    assert hvd.allreduce(loss, weight=0 if last else 2).tolist() == [6.0, 6.0]


def check_a_gradient_is_the_ranks_share() -> None:
    own, weights = hvd.rank(), uneven()
    for grouped in (False, True):
        tensor = torch.ones(3, requires_grad=True)
        if grouped:
            (mean,) = hvd.grouped_allreduce([tensor], weight=weights[own])
        else:
            mean = hvd.allreduce(tensor, weight=weights[own])
        (mean * (own + 1.0)).sum().backward()
        ranks = sum(range(1, hvd.size() + 1))
        assert tensor.grad is not None
        assert tensor.grad.tolist() == [ranks * weights[own] / sum(weights)] * 3


def check_over_a_process_set() -> None:
    with process_set_of([0, hvd.size() - 1]) as ranks:
        if ranks.included():
            own = torch.tensor([8.0 * (hvd.rank() + 1)])
            weight = 3.0 if hvd.rank() == 0 else 1.0
            mean = hvd.allreduce(own, weight=weight, process_set=ranks)
            assert mean.tolist() == [(3 * 8.0 + 8.0 * hvd.size()) / 4]


def check_wrong_arguments_reach_all_ranks() -> None:
    weight: Any
    last = hvd.rank() == hvd.size() - 1
    tensor = torch.ones(2)
    for number, (weight, says) in enumerate(
        [
            (-1, "weight is -1"),
            (math.nan, "weight is nan"),
            (math.inf, "weight is inf"),
            ("x", "weight is 'x'"),
            (10**400, "weight is 1000"),
        ]
    ):
        with pytest.raises((ValueError, HorovodInternalError), match=says):
            hvd.allreduce(tensor, name=f"wrong.{number}", weight=weight if last else 1)
    for more, says in (
        ({"op": hvd.Sum}, "needs op=hvd.Average"),
        ({"prescale_factor": 2.0}, "without prescale_factor"),
        ({"compression": hvd.Compression.fp16}, "compression=hvd.Compression.none"),
    ):
        with pytest.raises(ValueError, match=says):
            hvd.allreduce(tensor, weight=1, **more)
    with pytest.raises(ValueError, match=r"not torch\.int64"):
        hvd.allreduce(torch.ones(2, dtype=torch.int64), weight=1)
    with pytest.raises(ValueError, match="Float8_e5m2, which is never added up"):
        hvd.allreduce(torch.ones(2).to(torch.float8_e5m2), weight=1)
    assert hvd.allreduce(tensor, weight=1).tolist() == [1.0, 1.0]


def check_types_that_differ() -> None:
    dtype = torch.float16 if hvd.rank() == 0 else torch.bfloat16  # both travel as fp32
    with pytest.raises(HorovodInternalError, match="Mismatched"):
        hvd.allreduce(torch.ones(2, dtype=dtype), name="types", weight=1)


def check_gradients_while_a_rank_has_joined() -> None:
    own, weights = hvd.rank(), uneven()
    present = hvd.size() - 1
    if own < present:
        tensor = torch.ones(3, requires_grad=True)
        (hvd.allreduce(tensor, name="joined", weight=weights[own]) * 2.0).sum().backward()
        assert tensor.grad is not None
        share = weights[own] / sum(weights[:present])
        assert tensor.grad.tolist() == pytest.approx([2.0 * present * share] * 3)
    hvd.join()


def check_weights_of_zero_change_nothing() -> None:
    tensor = torch.full((2,), hvd.rank() + 1.0)
    with pytest.raises(ValueError, match=r"the sum of all ranks' weights is 0"):
        hvd.allreduce_(tensor, weight=0)
    assert tensor.tolist() == [hvd.rank() + 1.0] * 2


def check_a_weight_on_some_ranks_only_is_an_error_on_all() -> None:
    weight = 1 if hvd.rank() == 0 else None
    with pytest.raises(HorovodInternalError, match="Mismatched"):
        hvd.allreduce(torch.ones(2), name="some", weight=weight)
