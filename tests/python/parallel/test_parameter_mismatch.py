"""Ranks whose optimizers have different parameters: one error on all ranks, and the job goes on."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import roundelay.torch as hvd
from daso_training import daso, nodes_of
from ordered_training import NAMES, Ordered, momentum
from ranks import Check, needs_ranks, run_check
from roundelay.errors import MismatchError
from roundelay.torch.strategies import LocalSGD

warnings.filterwarnings("ignore", "strategy .*all ranks are on one node", RuntimeWarning)


@pytest.mark.parametrize("np", [2, 4])
def test_parameter_mismatch(np: int, check: Check) -> None:
    run_check(check, np)


def _is_last() -> bool:
    return hvd.rank() == hvd.size() - 1


def _raised(call: Callable[[], Any], *words: str) -> None:
    """Checks that all ranks raise one MismatchError that names two ranks and the difference."""
    with pytest.raises(MismatchError) as raised:
        call()
    texts: list[str] = hvd.allgather_object(str(raised.value))
    assert len(set(texts)) == 1, texts
    for word in ("rank 0", f"rank {hvd.size() - 1}", *words):
        assert word in texts[0], texts[0]


Pairs = list[tuple[str, torch.Tensor]]


def _pairs(**other: torch.Tensor) -> Pairs:
    """Returns four named parameters; on the last rank these ones in place of those of their names."""
    parameters: dict[str, torch.Tensor] = {name: nn.Parameter(torch.zeros(3)) for name in NAMES}
    return list({**parameters, **(other if _is_last() else {})}.items())


def _wrapped(pairs: Pairs, named: bool = True, **arguments: Any) -> Any:
    plain = torch.optim.SGD([one for _, one in pairs], lr=1.0)
    return hvd.DistributedOptimizer(plain, pairs if named else None, op=hvd.Sum, **arguments)


def _backward(pairs: Pairs, factor: float = 1.0) -> None:
    torch.stack([(one * factor).sum() for _, one in pairs]).sum().backward()


def check_first_steps() -> None:
    cases: list[tuple[Callable[[], tuple[Pairs, dict[str, Any]]], tuple[str, ...]]] = [
        (
            lambda: (_pairs(e=nn.Parameter(torch.zeros(3))), {}),
            ("has 'e' (of 5 parameters)", "(4 parameters)"),
        ),
        (lambda: (_pairs(b=nn.Parameter(torch.zeros(4))), {}), ("'b' has shape (3,)", "and (4,) on")),
        (lambda: (_pairs(b=nn.Parameter(torch.zeros(3).double())), {}), ("'b' is float32", "float64")),
        (lambda: (_renamed(), {}), ("has 'c'", "does not")),
        (lambda: (_pairs(), {"named": not _is_last()}), ("has 'a'", "does not", "named_parameters")),
        (lambda: (_pairs(), {"groups": 2 if _is_last() else 1}), ("'c' is in group 0 on", "in group 1")),
        (lambda: (_pairs(), {"groups": 1 if _is_last() else None}), ("'a' is in no group on", "in group 0")),
    ]
    for make, words in cases:
        pairs, arguments = make()
        optimizer = _wrapped(pairs, **arguments)
        for _ in range(2):
            _raised(lambda: _backward(pairs), *words)  # noqa: B023
            optimizer.zero_grad()
        _train()


def _renamed() -> Pairs:
    return [("e" if name == "c" and _is_last() else name, one) for name, one in _pairs()]


def check_how_elements_lie_in_memory() -> None:
    """A pool reduces its memory as it is."""
    for size in (1, 2):
        image = torch.zeros(2, 3, size, size)
        if _is_last():
            image = image.to(memory_format=torch.channels_last)
        optimizer = _wrapped([("image", nn.Parameter(image))])
        if size == 1:  # both formats are the same
            optimizer.step()
        else:
            _raised(optimizer.step, "'image' has strides (12, 4, 2, 1) (memory_format) on", "(12, 1, 6, 3)")
    _train()


def check_lists_of_groups_are_compared_by_content() -> None:
    pairs = _pairs()
    tensors = dict(pairs)
    other = [["a", "b"], ["c"]] if _is_last() else [["a", "c"], ["b"]]
    optimizer = _wrapped(pairs, groups=[[tensors[name] for name in group] for group in other])
    _raised(lambda: _backward(pairs), "'b' is in group 1 on", "in group 0")
    optimizer.zero_grad()
    _train()


def _train() -> None:
    """Trains with equal parameters, and checks that the sums are right: no rank has anything behind."""
    pairs = _pairs()
    optimizer = _wrapped(pairs)
    for step in range(1, 3):
        optimizer.zero_grad()
        _backward(pairs, hvd.rank() + 1.0)
        optimizer.step()
        total = step * sum(range(1, hvd.size() + 1))
        assert [one.tolist() for _, one in pairs] == [[-float(total)] * 3] * 4


def check_operations_that_only_some_ranks_have_in_flight_leave_nothing_behind() -> None:
    pairs = _renamed()
    optimizer = _wrapped(pairs)
    prefix = hvd.broadcast_object(_prefix(lambda: _backward(pairs)))
    optimizer.zero_grad()
    for name in ("a", "b", "c", "d", "e", "agreement1"):
        for _ in range(2):
            total = hvd.allreduce(torch.full((3,), hvd.rank() + 1.0), op=hvd.Sum, name=f"{prefix}.{name}")
            assert total.tolist() == [sum(range(1, hvd.size() + 1))] * 3


def _prefix(call: Callable[[], None]) -> str:
    with pytest.raises(MismatchError) as raised:
        call()
    return str(raised.value).split("'")[1]


def check_one_of_two_optimizers_in_a_backward() -> None:
    """The other one's gradients are right."""
    wrong, right = _renamed(), _pairs()
    optimizers = [_wrapped(wrong), _wrapped(right)]
    _raised(lambda: _backward(wrong + right), "has 'c'")
    assert [one.grad.tolist() for _, one in right if one.grad is not None] == [[hvd.size()] * 3] * 4
    for optimizer in optimizers:
        optimizer.zero_grad()
    _train()


def check_a_parameter_that_comes_later() -> None:
    """Gradients are in buckets by then."""
    pairs = _pairs()
    optimizer = _wrapped(pairs)
    for _ in range(5):
        optimizer.zero_grad()
        _backward(pairs)
        optimizer.step()
    extra = ("extra", nn.Parameter(torch.zeros(2 + _is_last())))
    optimizer.add_param_group({"params": [extra[1]]})
    optimizer.zero_grad()
    _raised(lambda: _backward([*pairs, extra]), "'noname.1.0' has shape (2,)", "(3,)")
    optimizer.zero_grad()
    _train()


def check_step_without_backward() -> None:
    pairs = _pairs(b=nn.Parameter(torch.zeros(4)))
    optimizer = _wrapped(pairs)
    _raised(optimizer.step, "'b' has shape (3,)")
    optimizer.zero_grad()
    _train()


def check_steps_that_adasum_combines() -> None:
    for freezes in (False, True):
        training = Ordered(NAMES, op=hvd.Adasum)
        training.run(1)
        before = training.values()
        if freezes:
            training.parameters["c" if _is_last() else "b"].requires_grad_(False)
        else:
            extra = nn.Parameter(torch.zeros(3 + _is_last()))
            training.optimizer.add_param_group({"params": [extra]})
        _raised(lambda: training.run(1), *(("'b' (of 3",) if freezes else ("'noname.1.0' has shape (3,)",)))  # noqa: B023
        assert training.values() == before
        Ordered(NAMES, op=hvd.Adasum).run(2)


def check_parameters_that_local_sgd_averages() -> None:
    strategy = "local_sgd:period=2,within_node=period"
    names = ["a", "b", "c", "d"]

    def wraps() -> None:
        pairs = _renamed()
        plain = torch.optim.SGD([one for _, one in pairs], lr=1.0)
        hvd.DistributedOptimizer(plain, pairs, strategy=strategy)

    _raised(wraps, "has 'c'", "does not")
    training = Ordered(names, strategy=LocalSGD(2, outer=momentum, within_node="period"))
    training.parameters["c" if _is_last() else "b"].requires_grad_(False)
    training.run(1)
    _raised(lambda: training.run(1), "'c'", "'b'", "average other tensors")
    Ordered(names, strategy=strategy).run(2)


@needs_ranks(4)
def check_parameters_that_daso_spreads_in_a_node() -> None:
    """One rank of the second node has another layer frozen than the rank that gives it its parameters."""
    with nodes_of(2):
        training = Ordered(NAMES, strategy=daso(0))
        training.backward()
        frozen = training.parameters["c" if _is_last() else "b"].requires_grad_(False)
        frozen.grad = None  # with a gradient the step would change it
        if hvd.rank() < 2:
            training.optimizer.step()
        else:
            with pytest.raises(MismatchError, match="rank 2 has 'c', rank 3 has 'b'"):
                training.optimizer.step()
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def check_state_of_other_parameters_is_not_broadcast() -> None:
    b = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: torch.optim.SGD([one for _, one in _pairs(b=b)], lr=1.0), "'noname.0.1' is float32"),
        (lambda: torch.optim.SGD(_renamed(), lr=1.0), "has 'c'"),
        (lambda: _wrapped(_renamed()), "has 'c'"),
        (lambda: torch.optim.SGD(_pairs(), lr=1.0) if _is_last() else _wrapped(_pairs(), False), "has 'a'"),
        (lambda: torch.optim.LBFGS(sorted(_pairs(), reverse=_is_last())), "has '0: a'"),
    ]
    for make, text in cases:
        optimizer = make()
        with pytest.raises(
            MismatchError, match=f"rank {hvd.size() - 1} has other parameter groups"
        ) as raised:
            hvd.broadcast_optimizer_state(optimizer, 0)
        if _is_last():
            assert text in str(raised.value)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    hvd.shutdown()  # not all ranks have wrapped as many optimizers, and their numbers are in names
    hvd.init()
