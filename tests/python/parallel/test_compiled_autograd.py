"""Backwards that compiled autograd runs: refused, or in no_sync() as without it."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

import roundelay.torch as hvd
from compiled_training import STEPS, Training
from ranks import Check, run_check


@pytest.mark.parametrize("np", [1, 2, pytest.param(4, marks=pytest.mark.nightly)])
def test_compiled_autograd(np: int, check: Check) -> None:
    run_check(check, np)


def _interpreted(graph: Any) -> Any:
    return graph


def _compiled_autograd(compiler: Any) -> AbstractContextManager[None]:
    return torch._dynamo.compiled_autograd._enable(compiler)  # type: ignore[attr-defined,no-any-return]


def _gradients(training: Training) -> list[torch.Tensor]:
    found = []
    for parameter in training.model.parameters():
        assert parameter.grad is not None
        found.append(parameter.grad.clone())
    return found


def _run(
    compiler: Any, backwards: int, keep: bool, steps: int = STEPS, **arguments: Any
) -> list[torch.Tensor]:
    """Returns the gradients after each step's last backward, and the parameters at the end."""
    training = Training(**arguments)
    found = []
    for step in range(steps):
        training.optimizer.zero_grad(set_to_none=not keep)
        for _ in range(backwards):
            loss = training.loss(step % 2, hvd.rank())
            runs = _compiled_autograd(compiler) if compiler is not None else contextlib.nullcontext()
            with training.optimizer.no_sync(), runs:
                loss.backward()  # type: ignore[no-untyped-call]
        training.optimizer.synchronize()
        found += _gradients(training)
        training.optimizer.step()
    return found + training.parameters()


def _check(compiler: Any, backwards: int = 1, keep: bool = False, **arguments: Any) -> None:
    torch._dynamo.reset()
    expected = _run(None, backwards, keep, **arguments)
    for one, other in zip(_run(compiler, backwards, keep, **arguments), expected, strict=True):
        assert torch.equal(one, other), (backwards, keep, arguments)


def check_gradients_and_steps() -> None:
    for keep in (False, True):
        _check(_interpreted, keep=keep)


def check_dynamo() -> None:
    _check(torch.compile(backend="eager"), steps=4)


def check_several_backwards() -> None:
    for keep in (False, True):
        _check(_interpreted, backwards=3, keep=keep)
        _check(_interpreted, backwards=2, keep=keep, backward_passes_per_step=2)


def check_groups_masters_and_strategies() -> None:
    _check(_interpreted, groups=1)
    _check(_interpreted, half=True)
    _check(_interpreted, half=True, keep=True, backwards=2)
    _check(_interpreted, strategy="local_sgd:period=2")


def check_an_unused_parameter_on_some_ranks() -> None:
    first, second = torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([first, second], lr=1.0), op=hvd.Sum)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss = (first * (hvd.rank() + 1.0)).sum()
        if hvd.rank() > 0:
            loss = loss + (second * 2.0).sum()
        with optimizer.no_sync(), _compiled_autograd(_interpreted):  # type: ignore[attr-defined]
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total = sum(range(1, hvd.size() + 1))
        assert first.tolist() == [-float(step * total)] * 3
        assert second.tolist() == [-2.0 * step * (hvd.size() - 1)] * 3


def check_a_backward_after_the_reduction() -> None:
    """Compiled autograd has read the reduced `.grad` before the first hook."""
    training = Training(op=hvd.Sum)
    training.loss(0, hvd.rank()).backward()  # type: ignore[no-untyped-call]
    expected = [2.0 * gradient for gradient in _gradients(training)]
    with training.optimizer.no_sync(), _compiled_autograd(_interpreted):
        training.loss(0, hvd.rank()).backward()  # type: ignore[no-untyped-call]
    training.optimizer.synchronize()
    for one, other in zip(_gradients(training), expected, strict=True):
        assert torch.equal(one, other)


def _expect_refusal(training: Training, refused: bool) -> None:
    """refused: this rank uses compiled autograd."""
    loss = training.loss(0, hvd.rank())
    with contextlib.ExitStack() as stack:
        if hvd.size() > 1:
            kind = ValueError if refused else hvd.HorovodInternalError
            stack.enter_context(pytest.raises(kind, match=r"compiled autograd .*no_sync\(\)"))
        if refused:
            stack.enter_context(_compiled_autograd(_interpreted))
        loss.backward()  # type: ignore[no-untyped-call]


def check_it_is_refused_on_all_ranks() -> None:
    training = Training()
    _expect_refusal(training, refused=True)
    training.optimizer.zero_grad()
    training.whole(0)  # the job goes on
    assert torch.equal(training.parameters()[0], hvd.broadcast(training.parameters()[0], 0))


def check_the_peers_of_a_refused_rank_do_not_wait() -> None:
    _expect_refusal(Training(), refused=hvd.rank() == hvd.size() - 1)
