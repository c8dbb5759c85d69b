"""Backwards that bring a parameter no gradient: torch.autograd.grad() only captures it, or it is undefined.

Neither may change `.grad`, which has the sum of all ranks already, or is in flight.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import roundelay.torch as hvd
from ranks import Check, run_check
from small_gradients import (
    ALONE,
    POOLED,
    WIRE,
    add_gradients,
    gradient_of,
    make_parameters,
    sum_of_ranks,
    wrapped_sgd,
)

Parameters = list[torch.nn.Parameter]
WAYS = {
    "alone": ALONE,
    "pooled": {POOLED: "1"},
    "unlocked": {POOLED: "1", "ROUNDELAY_SCHEDULE_LOCK": "0"},
    "half": {POOLED: "1", WIRE: "bf16"},
}


@pytest.mark.parametrize(("way", "np"), [("pooled", 1), *((way, np) for way in WAYS for np in (2, 4))])
def test_captured_gradients(way: str, np: int, check: Check) -> None:
    run_check(check, np, env=WAYS[way])


def _loss(parameters: Parameters) -> torch.Tensor:
    """The gradients are rank + 1, twice that, and so on."""
    own = hvd.rank() + 1.0
    return torch.stack([(p * own * (index + 1)).sum() for index, p in enumerate(parameters)]).sum()


def _check_gradients(parameters: Parameters, times: float = 1.0) -> None:
    expected = [[times * sum_of_ranks() * (index + 1)] * 3 for index in range(len(parameters))]
    assert [gradient_of(parameter) for parameter in parameters] == expected


def _captured(parameters: Parameters, loss: torch.Tensor) -> None:
    found = torch.autograd.grad(loss, parameters, retain_graph=True)
    own = hvd.rank() + 1.0
    assert [one.tolist() for one in found] == [[own * (index + 1)] * 3 for index in range(len(parameters))]


def _step(optimizer: torch.optim.SGD, parameters: Parameters, times: float = 1.0) -> None:
    """Takes a step, which moves each parameter by its gradient."""
    before = [parameter.detach().clone() for parameter in parameters]
    optimizer.step()
    for index, (parameter, old) in enumerate(zip(parameters, before, strict=True)):
        assert (old - parameter.detach()).tolist() == [times * sum_of_ranks() * (index + 1)] * 3
    optimizer.zero_grad()


def check_grad_after_backward() -> None:
    parameters = make_parameters(3)
    optimizer = wrapped_sgd(parameters)
    for _ in range(5):
        loss = _loss(parameters)
        loss.backward(retain_graph=True)
        for _ in range(2):
            _captured(parameters, loss)
            _check_gradients(parameters)
        _step(optimizer, parameters)


def check_grad_of_some_parameters_and_of_an_input() -> None:
    parameters = make_parameters(3)
    optimizer = wrapped_sgd(parameters)
    for _ in range(4):
        x = torch.ones(3, requires_grad=True)
        loss = _loss(parameters) + (parameters[0] * x * 0.0).sum()
        loss.backward(retain_graph=True)
        torch.autograd.grad(loss, [x, parameters[1]], retain_graph=True)
        _check_gradients(parameters)
        _step(optimizer, parameters)


def check_grad_while_operations_are_in_flight() -> None:
    """A hook of the user's asks for it in the middle of a backward."""
    parameters = make_parameters(3)
    optimizer = wrapped_sgd(parameters)
    asked = 0

    def ask(_: torch.Tensor) -> None:
        nonlocal asked
        asked += 1
        with torch.enable_grad():
            _captured(parameters, _loss(parameters))

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(ask)
    for step in range(1, 4):
        _loss(parameters).backward()
        assert asked == 3 * step
        _check_gradients(parameters)
        _step(optimizer, parameters)


def check_grad_with_cleared_gradients() -> None:
    parameters = make_parameters(3)
    optimizer = wrapped_sgd(parameters)
    for _ in range(4):
        loss = _loss(parameters)
        loss.backward(retain_graph=True)
        for parameter in parameters:
            parameter.grad = None
        _captured(parameters, loss)
        assert [parameter.grad for parameter in parameters] == [None] * 3
        loss.backward()
        _check_gradients(parameters)
        _step(optimizer, parameters)


def check_grad_between_two_backwards() -> None:
    parameters = make_parameters(3)
    optimizer = wrapped_sgd(parameters)
    for _ in range(4):
        loss = _loss(parameters)
        loss.backward(retain_graph=True)
        _captured(parameters, loss)
        loss.backward(retain_graph=True)
        _captured(parameters, loss)
        _check_gradients(parameters, times=2.0)
        _step(optimizer, parameters, times=2.0)


def check_grad_under_passes_and_no_sync() -> None:
    parameters = make_parameters(3)
    optimizer: Any = wrapped_sgd(parameters, backward_passes_per_step=2)
    for _ in range(4):
        for _ in range(2):
            loss = _loss(parameters)
            _captured(parameters, loss)
            loss.backward(retain_graph=True)
            _captured(parameters, loss)
        _check_gradients(parameters, times=2.0)
        _step(optimizer, parameters, times=2.0)
    parameters = make_parameters(3)
    optimizer = wrapped_sgd(parameters)
    for _ in range(3):
        loss = _loss(parameters)
        with optimizer.no_sync():
            loss.backward(retain_graph=True)
            _captured(parameters, loss)
        loss.backward(retain_graph=True)
        _captured(parameters, loss)
        _check_gradients(parameters, times=2.0)
        _step(optimizer, parameters, times=2.0)


def check_other_ops_take_it_for_no_second_backward() -> None:
    for op, combined in ((hvd.Max, hvd.size()), (hvd.Min, 1)):
        parameters = make_parameters(2)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), op=op)
        for _ in range(4):
            loss = _loss(parameters)
            loss.backward(retain_graph=True)
            _captured(parameters, loss)
            assert [gradient_of(p) for p in parameters] == [[combined] * 3, [2.0 * combined] * 3]
            optimizer.step()
            optimizer.zero_grad()


def check_groups_strategies_and_kept_gradients() -> None:
    for arguments in ({"groups": 1}, {"strategy": "csc:keep=0.5,momentum=none,dense_below=0"}, {}):
        parameters = make_parameters(3)
        optimizer = wrapped_sgd(parameters, **arguments)
        for step in range(5):
            loss = _loss(parameters)
            loss.backward(retain_graph=True)
            before = [gradient_of(parameter) for parameter in parameters]
            if "strategy" not in arguments:
                _check_gradients(parameters)
            _captured(parameters, loss)
            assert [gradient_of(parameter) for parameter in parameters] == before
            optimizer.step()
            optimizer.zero_grad(set_to_none=step % 2 == 0)


def check_backward_with_inputs() -> None:
    """It accumulates into these alone."""
    parameters = make_parameters(3)
    optimizer = wrapped_sgd(parameters)
    for _ in range(4):
        loss = _loss(parameters)
        loss.backward(inputs=parameters[:1], retain_graph=True)
        loss.backward(inputs=parameters[1:], retain_graph=True)
        _captured(parameters, loss)
        _check_gradients(parameters)
        _step(optimizer, parameters)


def check_graphs_of_graphs() -> None:
    """The norm of captured gradients is a loss, and .grad has a graph."""
    parameters = make_parameters(2)
    optimizer = wrapped_sgd(parameters)
    for _ in range(4):
        for parameter in parameters:
            parameter.data.fill_(2.0)
        loss = torch.stack([(parameter**3).sum() for parameter in parameters]).sum() * (hvd.rank() + 1.0)
        captured = torch.autograd.grad(loss, parameters, create_graph=True)
        total = loss + sum(one.sum() for one in captured)
        total.backward(create_graph=True)
        torch.autograd.grad(total, parameters, retain_graph=True)
        for parameter in parameters:
            assert gradient_of(parameter) == [(12.0 + 12.0) * sum_of_ranks()] * 3
            parameter.grad = None
        optimizer.zero_grad()


def check_parameters_that_change_their_type() -> None:
    """The graph's node of such a parameter is another one."""
    parameters = make_parameters(3)
    optimizer = wrapped_sgd(parameters)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float32):
        optimizer.zero_grad()
        for parameter in parameters:
            parameter.data = parameter.data.to(dtype)
        for _ in range(4):
            loss = _loss(parameters)
            loss.backward(retain_graph=True)
            torch.autograd.grad(loss, parameters, retain_graph=True)
            loss.backward()
            _check_gradients(parameters, times=2.0)
            optimizer.step()
            optimizer.zero_grad()


def check_an_old_graph_after_a_change_of_type() -> None:
    parameters = make_parameters(2)
    optimizer = wrapped_sgd(parameters)
    loss = _loss(parameters)
    loss.backward(retain_graph=True)
    for parameter in parameters:
        parameter.data = parameter.data.to(torch.float64)
    with pytest.raises(RuntimeError, match="not have been used in the graph"):  # torch's own error
        torch.autograd.grad(loss, parameters, retain_graph=True)
    for parameter in parameters:
        parameter.data = parameter.data.to(torch.float32)
    _check_gradients(parameters)
    _step(optimizer, parameters)


class _Ignores(torch.autograd.Function):
    """Uses its second argument, for which its backward has no gradient."""

    @staticmethod
    def forward(_ctx: Any, x: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
        return x + parameter.sum()

    @staticmethod
    def backward(_ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0], None


def check_undefined_gradients() -> None:
    parameters = make_parameters(3)
    optimizer = wrapped_sgd(parameters)
    for _ in range(5):
        ignored = _Ignores.apply(_loss(parameters[:2]), parameters[2])
        ignored.backward(retain_graph=True)
        assert parameters[2].grad is None  # as in plain torch
        optimizer.step()
        assert parameters[2].detach().tolist() == [0.0] * 3
        optimizer.zero_grad()


def check_an_undefined_gradient_after_a_reduced_one() -> None:
    parameters = make_parameters(3)
    optimizer = wrapped_sgd(parameters)
    for _ in range(4):
        _loss(parameters).backward()
        _Ignores.apply(torch.zeros(3, requires_grad=True), parameters[1]).sum().backward()
        _check_gradients(parameters)
        _step(optimizer, parameters)


def check_undefined_on_one_rank() -> None:
    """The others' gradients are summed, and this rank has the sum."""
    parameters = make_parameters(2)
    optimizer = wrapped_sgd(parameters)
    for _ in range(5):
        loss = _loss(parameters[:1])
        if hvd.rank() == 0:
            _Ignores.apply(loss, parameters[1]).backward()
        else:
            (loss + (parameters[1] * 2.0 * (hvd.rank() + 1)).sum()).backward()
        if hvd.size() > 1:
            assert gradient_of(parameters[1]) == [2.0 * (sum_of_ranks() - 1.0)] * 3
        assert gradient_of(parameters[0]) == [sum_of_ranks()] * 3
        optimizer.step()
        optimizer.zero_grad()


def check_an_argument_that_a_checkpoint_does_not_use() -> None:
    parameters = make_parameters(2)
    optimizer = wrapped_sgd(parameters)
    for step in range(6):
        used = step % 2 == 0

        def layer(x: torch.Tensor, w: torch.Tensor, used: bool = used) -> torch.Tensor:
            return x + w * 2.0 * (hvd.rank() + 1.0) if used else x * 1.0

        x = parameters[0] * (hvd.rank() + 1.0)
        checkpoint(layer, x, parameters[1], use_reentrant=True).sum().backward()
        assert gradient_of(parameters[0]) == [sum_of_ranks()] * 3
        if used:
            assert gradient_of(parameters[1]) == [2.0 * sum_of_ranks()] * 3
        else:
            assert parameters[1].grad is None
        optimizer.step()
        optimizer.zero_grad()


def check_passes_count_contributions_only() -> None:
    """A pass that brings a parameter nothing is no pass of this parameter, as a layer that is not used."""
    parameters = make_parameters(2)
    optimizer = wrapped_sgd(parameters, backward_passes_per_step=2)
    for _ in range(4):
        _loss(parameters).backward()
        _Ignores.apply(_loss(parameters[:1]), parameters[1]).backward()
        assert gradient_of(parameters[0]) == [2.0 * sum_of_ranks()] * 3
        optimizer.step()
        assert gradient_of(parameters[1]) == [2.0 * sum_of_ranks()] * 3
        optimizer.zero_grad()


def check_frozen_after_the_forward() -> None:
    """Autograd adds nothing to a parameter that no longer wants a gradient."""
    parameters = make_parameters(2)
    optimizer = wrapped_sgd(parameters)
    for _ in range(3):
        loss = _loss(parameters)
        loss.backward(retain_graph=True)
        parameters[1].requires_grad_(False)
        loss.backward()
        parameters[1].requires_grad_(True)
        assert gradient_of(parameters[0]) == [2.0 * sum_of_ranks()] * 3
        assert gradient_of(parameters[1]) == [2.0 * sum_of_ranks()] * 3
        optimizer.step()
        optimizer.zero_grad()


def check_a_hook_that_raises_before_anything_is_added() -> None:
    """The step takes the gradient that was there."""
    parameters = make_parameters(2)
    optimizer = wrapped_sgd(parameters)
    failing = False

    def fail(_: torch.Tensor) -> None:
        if failing:
            raise RuntimeError("a hook of the user's")

    for parameter in parameters:
        parameter.register_hook(fail)
    for _ in range(4):
        loss = _loss(parameters)
        loss.backward(retain_graph=True)
        failing = True
        with pytest.raises(RuntimeError, match="a hook of the user's"):
            loss.backward()
        failing = False
        _step(optimizer, parameters)


def check_two_optimizers_and_a_norm_of_both() -> None:
    first, second = make_parameters(2), make_parameters(2)
    optimizers = wrapped_sgd(first), wrapped_sgd(second)
    for _ in range(4):
        loss = _loss(first) + _loss(second)
        loss.backward(retain_graph=True)
        torch.autograd.grad(loss, [*first, *second], retain_graph=True)
        add_gradients((first[0], 0.0))
        for optimizer, parameters in zip(optimizers, (first, second), strict=True):
            _step(optimizer, parameters)
