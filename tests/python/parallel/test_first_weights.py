"""Ranks that begin with different weights: one warning, on the first rank of the set, and no other effect."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from ranks import Check, run_check

OFF = "values_are_not_compared_where_the_knob_is_off"
Weights = Mapping[str, torch.Tensor]


@pytest.mark.parametrize("np", [2, 4])
@pytest.mark.checks_of(but=[OFF])
def test_first_weights(np: int, check: Check) -> None:
    run_check(check, np)


@pytest.mark.parametrize("np", [2])
@pytest.mark.checks_of(only=[OFF])
def test_the_knob(np: int, check: Check) -> None:
    run_check(check, np, env={"ROUNDELAY_CHECK_WEIGHTS": "0"})


def _is_last() -> bool:
    return hvd.rank() == hvd.size() - 1


def _weights(dtype: torch.dtype = torch.float32, **other: float) -> dict[str, nn.Parameter]:
    """Returns three parameters, all of them ones. other: a number to add on the last rank, by name."""
    made = {name: torch.ones(3, dtype=dtype) for name in ("a", "b", "c")}
    for name, more in other.items():
        made[name][-1] += more if _is_last() else 0
    return {name: nn.Parameter(one) for name, one in made.items()}


def _wrapped(weights: Weights, **arguments: Any) -> torch.optim.Optimizer:
    plain = torch.optim.SGD([one for one in weights.values() if one.requires_grad], lr=1.0)
    return hvd.DistributedOptimizer(plain, weights.items(), **arguments)


def _backward(parameters: Iterable[torch.Tensor]) -> None:
    torch.stack([(one.abs() if one.is_complex() else one).sum() for one in parameters]).sum().backward()


def _steps(optimizer: torch.optim.Optimizer, weights: Weights, count: int = 2) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        _backward(one for one in weights.values() if one.requires_grad)
        optimizer.step()


def _said(work: Callable[[], object]) -> list[str]:
    """Returns this rank's warnings of first weights."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return [str(one.message) for one in caught if "with other values of parameter" in str(one.message)]


def _train(weights: Weights, **arguments: Any) -> list[str]:
    return _said(lambda: _steps(_wrapped(weights, **arguments), weights))


def _expect(said: list[str], *words: str) -> None:
    """Checks that the first rank alone has said this, in one warning."""
    assert len(said) == (hvd.rank() == 0), said
    for text in said:
        assert all(word in text for word in words), text


def check_the_first_difference_is_named_once() -> None:
    last = hvd.size() - 1
    first = f"rank {last} begins with other values of parameter 'b' than rank 0 (2 of the 3 parameters"
    cures = ("hvd.broadcast_parameters(model.state_dict(), root_rank=0)", "ROUNDELAY_CHECK_WEIGHTS=0")
    _expect(_train(_weights(b=0.5, c=1.0)), first, *cures)


def check_training_goes_on() -> None:
    weights = _weights(b=0.5)
    _train(weights)
    assert weights["a"].tolist() == [-1.0, -1.0, -1.0]
    assert weights["b"].tolist() == [-1.0, -1.0, -0.5 if _is_last() else -1.0]


def check_all_ranks_that_differ_are_named() -> None:
    weights = _weights()
    weights["c"].data += float(hvd.rank())
    others = ", ".join(map(str, range(1, hvd.size())))
    _expect(_train(weights), f"{others} begin")


def check_equal_weights() -> None:
    assert not _train(_weights())


def check_weights_that_are_broadcast_after_wrapping() -> None:
    weights = _weights(a=1.0)
    optimizer = _wrapped(weights)
    hvd.broadcast_parameters(weights, root_rank=0)
    assert not _said(lambda: _steps(optimizer, weights))


def check_each_kind_of_number() -> None:
    for dtype in (torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128):
        assert not _train(_weights(dtype))
        _expect(_train(_weights(dtype, c=0.5)), "'c'")


def check_masters() -> None:
    assert not _train(_weights(torch.bfloat16), master_weights=True)
    _expect(_train(_weights(torch.bfloat16, b=0.5), master_weights=True), "'b'")


def check_frozen_parameters() -> None:
    weights = _weights(b=0.5)
    weights["b"].requires_grad_(False)
    optimizer = torch.optim.SGD(weights.values(), lr=1.0)
    hvd.DistributedOptimizer(optimizer, weights.items())
    _expect(_said(lambda: _steps(optimizer, weights)), "'b'", "1 of the 3")


def check_several_optimizers() -> None:
    one, two = _weights(), _weights(a=0.5)
    both = [_wrapped(one), _wrapped(two)]

    def work() -> None:
        for _ in range(2):
            _backward((*one.values(), *two.values()))
            for optimizer in both:
                optimizer.step()
                optimizer.zero_grad()

    _expect(_said(work), "'a'")


def check_a_process_set() -> None:
    if hvd.size() == 2:
        return
    last_two = hvd.add_process_set(range(hvd.size() - 2, hvd.size()))
    if last_two.included():
        said = _train(_weights(b=0.5), process_set=last_two)
        assert len(said) == (hvd.rank() == hvd.size() - 2), said
    hvd.remove_process_set(last_two)


def check_a_rank_that_has_joined_does_not_compare_later() -> None:
    """It takes no part in the first step. In the next one it has other weights, and nobody waits."""
    weights = _weights()
    optimizer = _wrapped(weights)
    said = []
    if not _is_last():
        said = _said(lambda: _steps(optimizer, weights))
    hvd.join()
    assert not said
    assert not _said(lambda: _steps(optimizer, weights))


def check_a_rank_without_gradients() -> None:
    weights = _weights(b=0.5)
    optimizer = _wrapped(weights)

    def work() -> None:
        if not _is_last():
            _backward(weights.values())
        optimizer.step()

    _expect(_said(work), "'b'")


def check_adasum() -> None:
    assert not _train(_weights(), op=hvd.Adasum)
    _expect(_train(_weights(b=0.5), op=hvd.Adasum), "'b'")


def check_strategies_whose_weights_differ_in_training() -> None:
    warnings.filterwarnings("ignore", "strategy .*all ranks are on one node", RuntimeWarning)
    for strategy in ("local_sgd:period=3", "daso:total_epochs=9,warmup_epochs=0"):
        weights = _weights()
        optimizer = _wrapped(weights, strategy=strategy)
        for _ in range(4):
            optimizer.zero_grad()
            (weights["a"] * (1.0 + hvd.rank())).sum().backward()
            assert not _said(optimizer.step)


def check_values_are_not_compared_where_the_knob_is_off() -> None:
    assert not _train(_weights(b=0.5))
    assert not _train(_weights(b=0.5), op=hvd.Adasum)
